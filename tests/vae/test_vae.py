"""The VAE: its bounds on a model whose evidence is known, its gradients, its posteriors."""

import math

import pytest
import torch
from cases import randomise
from torch import nn
from torch.distributions import Normal
from torch.func import functional_call, jacrev
from vaes import CONTEXT, LATENTS, PIXELS, POSTERIORS, linear_vae, rows_of, small_vae

from bnaf import BNAF, SettingsError, ShapeError, TrainingSettings, fit
from bnaf._random import private_draws
from bnaf.training import Batch
from bnaf.vae import NegativeELBO, Posterior, estimate_evidence
from bnaf.vae.posterior import log_softplus


def test_bounds_of_the_true_posterior_are_the_evidence_whatever_is_drawn():
    vae = linear_vae()
    x = rows_of(vae, 20)
    evidence = vae.decoder.evidence().log_prob(x)
    torch.testing.assert_close(vae.elbo(x), evidence)
    estimate = estimate_evidence(vae, x, samples=3)
    torch.testing.assert_close(estimate.log_likelihoods, evidence)
    assert estimate.errors.max() < 1e-6


def test_the_bound_is_the_evidence_less_the_divergence_of_the_posterior():
    vae = linear_vae(shift=0.7)
    x = rows_of(vae, 10)
    true = linear_vae().encode(x)
    law = vae.encode(x)
    z = true.transform.inv.parts[0]
    scale = z.log_scale.exp()
    divergence = 0.5 * ((law.transform.inv.parts[0].shift - z.shift) / scale).square().sum(-1)
    bound = vae.elbo(x, draws=20_000)
    expected = vae.decoder.evidence().log_prob(x) - divergence
    # the log-ratio is normal here, with a variance of twice the divergence
    error = (2 * divergence / 20_000).sqrt()
    assert ((bound - expected).abs() < 5 * error).all()


def test_more_samples_tighten_the_bound_up_to_the_evidence():
    vae = linear_vae(shift=0.4)
    x = rows_of(vae, 200)
    evidence = vae.decoder.evidence().log_prob(x).mean().item()
    means = [estimate_evidence(vae, x, samples=samples, chunk=4000).mean for samples in (1, 5, 50)]
    assert means == sorted(means)
    assert means[-1] < evidence
    many = estimate_evidence(vae, x[:5], samples=20_000)
    exact = vae.decoder.evidence().log_prob(x[:5])
    assert ((many.log_likelihoods - exact).abs() < 5 * many.errors).all()
    assert many.errors.max() < 0.1


def test_one_sample_is_the_elbo():
    vae = small_vae()
    x = rows_of(vae, 6)
    with private_draws(3):
        bound = vae.elbo(x)
    estimate = estimate_evidence(vae, x, samples=1, seed=3)
    torch.testing.assert_close(estimate.log_likelihoods, bound.detach())


def test_chunks_change_nothing_but_the_draws():
    vae = linear_vae()
    x = rows_of(vae, 7)
    estimates = [estimate_evidence(vae, x, samples=9, chunk=chunk) for chunk in (1, 4, 9, 40)]
    for estimate in estimates:
        torch.testing.assert_close(
            estimate.log_likelihoods, vae.decoder.evidence().log_prob(x), rtol=1e-9, atol=1e-9
        )
    told = []
    estimate_evidence(vae, x, samples=2, chunk=4, tell=told.append)
    assert told == [2, 4, 6, 7]


def test_weights_that_overflow_are_summed_as_logarithms():
    vae = linear_vae()
    x = 1e3 * rows_of(vae, 3)
    estimate = estimate_evidence(vae, x, samples=10)
    torch.testing.assert_close(estimate.log_likelihoods, vae.decoder.evidence().log_prob(x))


def test_the_standard_error_of_rows_is_that_of_their_mean():
    vae = linear_vae()
    estimate = estimate_evidence(vae, rows_of(vae, 9), samples=2)
    assert estimate.standard_error == pytest.approx(estimate.log_likelihoods.std().item() / 3)
    assert math.isnan(estimate_evidence(vae, rows_of(vae, 1), samples=2).standard_error)


@pytest.mark.parametrize("name", POSTERIORS)
def test_the_density_of_a_posterior_is_that_of_autograd(name):
    posterior = Posterior(3, CONTEXT, flow=POSTERIORS[name](3, CONTEXT)).double()
    randomise(posterior)
    context = torch.randn(5, CONTEXT, dtype=torch.float64)
    with private_draws(1):
        noise = torch.randn(5, 3, dtype=torch.float64)
    with private_draws(1):
        z, log_prob = posterior(context).rsample_and_log_prob()
    for row in range(5):
        transform = posterior(context[row]).transform.inv
        torch.testing.assert_close(transform(noise[row]), z[row])
        log_det = torch.linalg.slogdet(jacrev(transform)(noise[row])).logabsdet
        expected = Normal(0, 1).log_prob(noise[row]).sum() - log_det
        torch.testing.assert_close(log_prob[row], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", POSTERIORS)
def test_a_posterior_scores_what_it_draws(name):
    posterior = Posterior(3, CONTEXT, flow=POSTERIORS[name](3, CONTEXT)).double()
    law = posterior(torch.randn(4, CONTEXT, dtype=torch.float64))
    z, log_prob = law.rsample_and_log_prob((6,))
    assert z.shape == (6, 4, 3)
    torch.testing.assert_close(law.log_prob(z), log_prob, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("name", POSTERIORS)
def test_gradients_of_the_bound_are_finite_differences(name):
    vae = small_vae(name)
    randomise(vae)
    objective = NegativeELBO(vae)
    batch = Batch(rows_of(vae, 4))
    names, weights = zip(*objective.named_parameters(), strict=True)
    direction = [torch.randn_like(weight) for weight in weights]

    def loss(step):
        moved = [w + step * d for w, d in zip(weights, direction, strict=True)]
        with private_draws(5):
            return functional_call(objective, dict(zip(names, moved, strict=True)), (batch,))

    step = 1e-5
    numeric = (loss(step) - loss(-step)).item() / (2 * step)
    gradient = torch.autograd.grad(loss(0.0), weights, allow_unused=True)
    exact = sum((g * d).sum() for g, d in zip(gradient, direction, strict=True) if g is not None)
    assert exact.item() == pytest.approx(numeric, rel=1e-6)


def test_the_warm_up_lets_the_divergence_grow_and_evaluation_has_all_of_it():
    vae = linear_vae(shift=0.7)
    objective = NegativeELBO(vae, warm_up=4)
    batch = Batch(rows_of(vae, 3))
    with private_draws(2):
        likelihood, log_ratio = vae.log_terms(batch.rows, vae.encode(batch.rows))
    for share in (0.25, 0.5, 0.75, 1.0, 1.0):
        with private_draws(2):
            losses = objective.losses(batch)
        torch.testing.assert_close(losses, -(likelihood + share * log_ratio)[0])
    objective.steps.zero_()
    objective.eval()
    with private_draws(2):
        torch.testing.assert_close(objective.losses(batch), -(likelihood + log_ratio)[0])


def test_early_stopping_counts_from_the_end_of_the_warm_up_on():
    vae = small_vae("gaussian")
    settings = TrainingSettings(
        steps=40,
        batch=20,
        evaluate_every=1,
        early_stopping=3,
        schedule="constant",
        plateau_threshold=1.0,  # which no evaluation but the first improves by
    )
    ended = [
        fit(
            vae,
            rows_of(vae, 20),
            valid=rows_of(vae, 20, seed=1),
            objective=NegativeELBO(vae, warm_up=warm_up),
            settings=settings,
            progress=False,
        ).steps
        for warm_up in (0, 10)
    ]
    assert ended == [4, 12]


@pytest.mark.parametrize("name", POSTERIORS)
def test_all_parts_of_a_vae_have_one_rate(name):
    assert NegativeELBO(small_vae(name)).rates() == {}


def test_training_brings_the_bound_to_the_evidence():
    vae = small_vae("gaussian")
    x, valid = rows_of(vae, 2000), rows_of(vae, 500, seed=1)
    settings = TrainingSettings(steps=400, batch=200, learning_rate=0.03)
    record = fit(
        vae, x, valid=valid, objective=NegativeELBO(vae), settings=settings, progress=False
    )
    evidence = -vae.decoder.evidence().log_prob(valid).mean().item()
    assert record.valid == pytest.approx(evidence, abs=0.02)
    assert record.valid > evidence - 0.01


def test_a_prior_is_any_law_of_latents():
    vae = small_vae("gaussian")
    vae.prior = BNAF(LATENTS, transforms=1, width=4, direction="sampling").double()
    x = rows_of(vae, 5)
    with private_draws(0):
        _, log_ratio = vae.log_terms(x, vae.encode(x))
    with private_draws(0):
        z, log_posterior = vae.encode(x).rsample_and_log_prob((1,))
    torch.testing.assert_close(log_ratio, vae.prior().log_prob(z) - log_posterior)
    assert vae.sample(4).shape == (4, PIXELS)


def test_reconstructions_samples_and_interpolations_have_the_shape_of_rows():
    vae = linear_vae()
    x = rows_of(vae, 4)
    assert vae.reconstruct(x).shape == x.shape
    assert vae.sample(7).shape == vae.sample(7, expect=True).shape == (7, PIXELS)
    with private_draws(0):
        lines = vae.interpolate(x[:2], x[2:], steps=5)
    assert lines.shape == (2, 5, PIXELS)
    torch.testing.assert_close(lines[:, 2], (lines[:, 0] + lines[:, 4]) / 2)


def test_log_softplus_is_finite_and_has_a_slope_everywhere():
    x = torch.tensor([-1e4, -80.0, -15.0, -14.9, 0.0, 90.0], requires_grad=True)
    values = log_softplus(x)
    exact = torch.nn.functional.softplus(x.double()).log()
    torch.testing.assert_close(values[2:].double(), exact[2:])
    values.sum().backward()
    assert values.isfinite().all()
    assert (x.grad > 0).all()


def test_variances_keep_to_their_bounds():
    posterior = Posterior(2, 1, variance_bounds=(0.01, 7))
    law = posterior(torch.tensor([[-1e6], [1e6]]))
    scale = law.transform.inv.parts[0].log_scale.exp()
    limits = torch.tensor([0.1, 7**0.5])
    assert all(any(torch.isclose(value, limit) for limit in limits) for value in scale.flatten())


def test_flows_and_parts_that_do_not_fit_are_refused():
    with pytest.raises(SettingsError, match=r"direction='sampling' .* got 'density'"):
        Posterior(2, 3, flow=BNAF(2, 3))
    with pytest.raises(SettingsError, match=r"context_features=4 .* got 3"):
        Posterior(2, 4, flow=BNAF(2, 3, direction="sampling"))
    with pytest.raises(SettingsError, match="largest of variance_bounds"):
        Posterior(2, 4, variance_bounds=(2.0, 1.0))
    with pytest.raises(SettingsError, match="samples must be"):
        estimate_evidence(linear_vae(), torch.zeros(1, 3).double(), samples=0)
    vae = linear_vae()
    vae.encoder = nn.Flatten(0)
    with pytest.raises(ShapeError, match="one row of features for each of 2 rows"):
        vae.encode(torch.zeros(2, 3).double())
