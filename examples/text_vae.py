"""Learn words by a VAE with an LSTM as decoder, and compare two posteriors.

The words are those of the names of Unicode's characters, which come with Python. Encoder and
decoder are plain torch modules: a decoder that reads what it has written so far returns a law
whose ``log_prob`` runs it. Run it from the root of the repository::

    python examples/text_vae.py --out demo
    python examples/text_vae.py --out demo --steps 4000
"""

import argparse
import sys
import unicodedata
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bnaf import BNAF, TrainingSettings, fit
from bnaf.vae import VAE, NegativeELBO, Posterior, estimate_evidence, save_vae

LETTERS = "abcdefghijklmnopqrstuvwxyz"
LONGEST = 10
TOKENS = len(LETTERS) + 1  # 0 ends a word, and fills what is left of its row
LATENTS, ENCODED, WIDTH = 16, 64, 96
FORGOTTEN = 0.5  # share of letters that the decoder does not see again while it is trained
VALID = TEST = 500
SAMPLES = 100


def read_arguments() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description="Learn words by a VAE with an LSTM as decoder.")
    parser.add_argument("--out", type=Path, required=True, help="folder for the two VAEs")
    parser.add_argument("--steps", type=int, default=2000, help="steps of training (default 2000)")
    parser.add_argument("--words", type=int, default=8000, help="words, at most (default 8000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of all draws (default 0)")
    return parser.parse_args()


def collect_words() -> list[str]:
    """Return the words of three letters or more in the names of Unicode's characters."""
    names = (unicodedata.name(chr(code), "") for code in range(sys.maxunicode))
    words = {word.lower() for name in names for word in name.split()}
    return sorted(
        word for word in words if 3 <= len(word) <= LONGEST and set(word) <= set(LETTERS)
    )


def as_rows(words: list[str]) -> Tensor:
    """Return a row of numbers for each word."""
    rows = torch.zeros(len(words), LONGEST + 1)
    for row, word in zip(rows, words, strict=True):
        row[: len(word)] = torch.tensor([LETTERS.index(letter) + 1.0 for letter in word])
    return rows


def as_word(row: Tensor) -> str:
    """Return the word of a row."""
    tokens = [int(token) for token in row]
    end = tokens.index(0) if 0 in tokens else len(tokens)
    return "".join(LETTERS[token - 1] for token in tokens[:end])


class Encoder(nn.Module):
    """Network that reads a word letter by letter."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(TOKENS, 32)
        self.reader = nn.LSTM(32, ENCODED // 2, batch_first=True, bidirectional=True)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the last states of both ways of reading."""
        _, (states, _) = self.reader(self.letters(rows.long()))
        return states.transpose(0, 1).flatten(1)


class Decoder(nn.Module):
    """Network that writes a word letter by letter, looking at the latents all the while."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(TOKENS, 32)
        self.writer = nn.LSTM(32 + LATENTS, WIDTH, batch_first=True)
        self.logits = nn.Linear(WIDTH, TOKENS)

    def forward(self, z: Tensor) -> "WordLaw":
        """Return the law of words given latents."""
        return WordLaw(self, z)


class WordLaw:
    """Law of words given latents, a row each."""

    def __init__(self, decoder: Decoder, z: Tensor) -> None:
        self.decoder, self.z = decoder, z

    def step(self, before: Tensor, state: tuple[Tensor, Tensor] | None = None) -> tuple:
        """Return the log-shares of what follows letters, and the state after them."""
        context = self.z.unsqueeze(1).expand(-1, before.shape[1], -1)
        read = torch.cat([self.decoder.letters(before), context], -1)
        hidden, state = self.decoder.writer(read, state)
        return self.decoder.logits(hidden).log_softmax(-1), state

    def log_prob(self, rows: Tensor) -> Tensor:
        """Return the log-probability of each word, its end included."""
        tokens = rows.long()
        before = F.pad(tokens, (1, 0))[:, :-1]
        if self.decoder.training:  # who sees all letters has no use for latents
            before = before * (torch.rand(before.shape) > FORGOTTEN)
        log_shares, _ = self.step(before)
        each = log_shares.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
        written = F.pad(tokens, (1, 0), value=1)[:, :-1] > 0  # the end is written, fillings not
        return (each * written).sum(-1)

    def sample(self) -> Tensor:
        """Draw a word for each row of latents."""
        token = torch.zeros(len(self.z), 1, dtype=torch.long)
        drawn, state = [], None
        for _ in range(LONGEST + 1):
            log_shares, state = self.step(token, state)
            token = torch.multinomial(log_shares[:, 0].exp(), 1)
            drawn.append(token)
        return torch.cat(drawn, 1).to(self.z.dtype)


def make_vae(flow: BNAF | None) -> VAE:
    """Return a VAE of words whose posterior has a flow, or is the Gaussian alone."""
    return VAE(Encoder(), Posterior(LATENTS, ENCODED, flow=flow), Decoder())


def train(vae: VAE, train_rows: Tensor, valid: Tensor, steps: int, seed: int) -> None:
    """Train a VAE in place."""
    fit(
        vae,
        train_rows,
        valid=valid,
        objective=NegativeELBO(vae, warm_up=steps // 2),
        settings=TrainingSettings(
            steps=steps, batch=128, learning_rate=3e-3, evaluate_every=100, seed=seed
        ),
        progress=False,
    )


@torch.no_grad()
def report(name: str, vae: VAE, test: Tensor, seed: int) -> None:
    """Print the bound, the likelihood and what the VAE makes of some words."""
    vae.eval()
    bound = vae.elbo(test, draws=20).mean().item()
    evidence = estimate_evidence(vae, test, samples=SAMPLES, chunk=20_000, seed=seed)
    weights = sum(weight.numel() for weight in vae.posterior.parameters())
    print(
        f"{name:<9} -ELBO {-bound:.3f} nats a word, NLL {-evidence.mean:.3f} ± "
        f"{evidence.standard_error:.3f} with {SAMPLES} samples, posterior of {weights:,} weights"
    )
    again = [as_word(row) for row in vae.reconstruct(test[:5])]
    pairs = zip(test[:5], again, strict=True)
    print("  read and written again:", ", ".join(f"{as_word(row)} {twin}" for row, twin in pairs))
    print("  written from the prior:", ", ".join(as_word(row) for row in vae.sample(8)))


def main() -> None:
    """Train two VAEs and compare them."""
    arguments = read_arguments()
    torch.manual_seed(arguments.seed)
    rows = as_rows(collect_words())
    rows = rows[torch.randperm(len(rows))[: arguments.words]]
    held = min(len(rows) // 4, VALID), min(len(rows) // 4, TEST)
    valid, test, train_rows = rows.split([*held, len(rows) - sum(held)])
    print(f"{len(train_rows):,} words to learn, {len(test):,} to test with")
    sizes = {"transforms": 4, "hidden_layers": 1, "width": 4}
    flow = BNAF(LATENTS, ENCODED, **sizes, direction="sampling", context="amortised")
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, posterior in (("gaussian", None), ("bnaf", flow)):
        torch.manual_seed(arguments.seed)
        vae = make_vae(posterior)
        train(vae, train_rows, valid, arguments.steps, arguments.seed)
        report(name, vae, test, arguments.seed)
        save_vae(vae, arguments.out / f"words-{name}.safetensors")


if __name__ == "__main__":
    main()
