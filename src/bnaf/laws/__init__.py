"""What a law is: transforms between rows, and the distribution of one of them and a base."""
