"""Flows at home in other libraries; each module needs the library of its name, an extra."""
