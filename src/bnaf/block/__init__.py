"""The paper's network: increasing autoregressive networks of block-triangular layers."""
