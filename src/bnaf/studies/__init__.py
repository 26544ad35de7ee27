"""The paper's studies: what ``bnaf reproduce`` runs, measures and draws."""
