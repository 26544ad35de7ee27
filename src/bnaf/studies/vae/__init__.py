"""Variational auto-encoders of images: section 5.4 and the third table of the paper."""
