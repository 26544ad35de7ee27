"""What a column means: its kind, how a flow sees its cells, and how they come back."""
