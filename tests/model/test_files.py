"""Model files: what is saved comes back, and nothing else is ever loaded."""

import json
import pickle
import struct
import subprocess
import sys
import textwrap

import pytest
import torch
from cases import CONTEXT_FEATURES, FLOWS, build, randomise
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kinds import fit_kinds, kinds_frame
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.overrides import TorchFunctionMode

import bnaf
from bnaf import BNAF, Model, SettingsError, StorageError, TrainingSettings, load, save
from bnaf._digest import digest_contents
from bnaf._random import without_draws
from bnaf.flows.ensemble import Ensemble
from bnaf.model import files
from bnaf.model.standardisation import Standardisation
from bnaf.tables.table import Table
from bnaf.vae import VAE, Posterior, load_vae, save_vae

SMALL = {"transforms": 1, "hidden_layers": 1, "width": 2}
RECORD = {"steps": 12, "losses": [1.5, float("inf")], "note": "é", "best": None}


def small_model() -> Model:
    flow = BNAF(2, 1, **SMALL, context_layers=0)
    randomise(flow)
    return Model(
        flow,
        columns=["größe", 'a "b"'],
        standardisation=Standardisation(
            torch.tensor([0.1, 1e300], dtype=torch.float64),
            torch.tensor([1 / 3, 1e-300], dtype=torch.float64),
        ),
        types=["int64", "float32"],
        given_columns=["g"],
        given_standardisation=Standardisation(torch.tensor([0.7]), torch.tensor([3.0])),
        record=RECORD,
    )


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("storage") / "model.safetensors"
    save(small_model(), path)
    return path


def forge(source, target, change=None, tensors=None, metadata=None):
    """Write a file with a changed header or tensors, and a digest that is right again."""
    with safe_open(source, framework="pt") as file:
        header = json.loads(file.metadata()["bnaf"])
    tensors = load_file(source) if tensors is None else tensors
    if change is not None:
        change(header)
    text = json.dumps(header)
    digest = digest_contents(text, tensors)
    save_file(tensors, target, {"bnaf": text, "sha256": digest, **(metadata or {})})
    return target


@pytest.mark.parametrize("name", FLOWS)
def test_flows_come_back_with_equal_numbers(tmp_path, name, conditional):
    flow, context = build(name, conditional)
    before = torch.get_rng_state()
    save(flow, tmp_path / "flow.safetensors")
    again = load(tmp_path / "flow.safetensors")
    assert torch.equal(torch.get_rng_state(), before)
    assert type(again) is type(flow)
    assert again.settings == flow.settings
    x = torch.randn(5, flow.features, dtype=torch.float64)
    assert torch.equal(again(context).log_prob(x), flow(context).log_prob(x))
    assert all(parameter.requires_grad for parameter in again.parameters())


def test_models_come_back_with_all_they_know(model_file):
    model, again = small_model(), load(model_file)
    assert isinstance(again, Model)
    assert again.columns == model.columns
    assert again.types == model.types
    assert again.given_columns == model.given_columns
    assert again.record == RECORD
    for name in ("standardisation", "given_standardisation"):
        saved, loaded = getattr(model, name), getattr(again, name)
        assert torch.equal(saved.location, loaded.location)
        assert torch.equal(saved.scale, loaded.scale)
    with safe_open(model_file, framework="pt") as file:
        header = json.loads(file.metadata()["bnaf"])
    assert header["library"] == bnaf.__version__
    assert header["format"] == files.FORMAT
    assert header["flow"] == "bnaf"


def test_whitened_models_come_back(tmp_path):
    rows = torch.randn(50, 3, dtype=torch.float64).cumsum(1)
    table = Table(rows, ("a", "b", "c"))
    settings = TrainingSettings(steps=2)
    model = Model.fit(table, given=["a"], settings=settings, progress=False)
    save(model, tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    assert again.standardisation.slopes is not None
    assert torch.equal(again.encoding.ranges, model.encoding.ranges)
    assert torch.equal(again.log_prob(table), model.log_prob(table))


@pytest.fixture
def whitened_file(tmp_path):
    flow = BNAF(2, 1, **SMALL, context_layers=0)
    factor = torch.tensor([[1.0, 0.0], [0.5, 2.0]], dtype=torch.float64)
    slopes = torch.tensor([[0.3], [-1.0]], dtype=torch.float64)
    zero, one = torch.zeros(2), torch.ones(2)
    model = Model(flow, standardisation=Standardisation(zero, one, factor, slopes))
    save(model, tmp_path / "white.safetensors")
    return tmp_path / "white.safetensors"


@pytest.mark.parametrize(
    ("name", "matrix"),
    [
        ("factor", torch.ones(2, 2, dtype=torch.float64)),
        ("factor", torch.eye(3, dtype=torch.float64)),
        ("factor", torch.full((2, 2), torch.nan, dtype=torch.float64)),
        ("factor", torch.eye(2, dtype=torch.long)),
        ("slopes", torch.ones(2, 2, dtype=torch.float64)),
        ("slopes", torch.ones(1, 1, dtype=torch.float64)),
    ],
)
def test_impossible_matrices_are_refused(whitened_file, tmp_path, name, matrix):
    tensors = load_file(whitened_file) | {f"standardisation.{name}": matrix}
    forged = forge(whitened_file, tmp_path / "forged.safetensors", tensors=tensors)
    with pytest.raises(StorageError, match=r"that do not fit its flow"):
        load(forged)


def test_matrices_of_format_2_are_read(whitened_file, tmp_path):
    tensors = load_file(whitened_file)
    matrices = {name: tensors.pop(f"standardisation.{name}") for name in ("factor", "slopes")}

    def as_of_old(header):
        header["format"] = 2
        header["standardisation"] |= {name: part.tolist() for name, part in matrices.items()}

    old = forge(whitened_file, tmp_path / "old.safetensors", as_of_old, tensors)
    rows, given = torch.randn(4, 2), torch.randn(4, 1)
    assert torch.equal(load(old).log_prob(rows, given), load(whitened_file).log_prob(rows, given))


def test_files_of_format_1_are_read(tmp_path, model_file):
    def as_of_old(header):
        assert header["standardisation"].keys() == {"location", "scale"}
        header["format"] = 1

    again = load(forge(model_file, tmp_path / "old.safetensors", as_of_old))
    rows, given = torch.randn(4, 2), torch.randn(4, 1)
    assert torch.equal(again.log_prob(rows, given), load(model_file).log_prob(rows, given))


def test_a_model_scores_the_same_after_loading(tmp_path):
    model = Model(BNAF(3, width=4), columns=["a", "b", "c"])
    save(model, tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    rows = torch.randn(9, 3)
    assert torch.equal(again.log_prob(rows), model.log_prob(rows))
    assert torch.equal(again.sample(4, seed=1), model.sample(4, seed=1))


@pytest.mark.parametrize("saved", [torch.float32, torch.float64, torch.bfloat16])
def test_element_types_and_devices(tmp_path, saved):
    flow = BNAF(2, **SMALL).to(saved)
    save(flow, tmp_path / "f.safetensors")
    assert next(load(tmp_path / "f.safetensors").parameters()).dtype == saved
    wide = load(tmp_path / "f.safetensors", device="cpu", dtype=torch.float64)
    x = torch.randn(4, 2, dtype=torch.float64)
    torch.testing.assert_close(wide().log_prob(x), flow.double()().log_prob(x))
    assert next(load(tmp_path / "f.safetensors", device="meta").parameters()).is_meta
    with pytest.raises(SettingsError, match=r"floating-point type, got torch.int64"):
        load(tmp_path / "f.safetensors", dtype=torch.int64)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "f.safetensors"
    save(BNAF(2, **SMALL), path)
    save(BNAF(3, **SMALL), path)
    assert load(path).features == 3

    def fail(_):
        raise OSError("No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(StorageError, match=r"cannot be written: No space left"):
        save(BNAF(4, **SMALL), path)
    assert load(path).features == 3
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("what", "error", "message"),
    [
        (torch.nn.Linear(2, 2), StorageError, r"a flow or a model, got Linear"),
        (
            Model(BNAF(2, **SMALL), record={"x": torch.ones(1)}),
            StorageError,
            r"what JSON can hold",
        ),
        (Model(BNAF(2, **SMALL), record={"x": "y" * 2**24}), StorageError, r"a shorter record"),
        (
            BNAF(1, hidden_layers=0, width=10**6),
            StorageError,
            r"flow has settings that make no BNAF",
        ),
    ],
)
def test_what_cannot_be_saved(tmp_path, what, error, message):
    with pytest.raises(error, match=message):
        save(what, tmp_path / "f.safetensors")
    assert not list(tmp_path.iterdir())


def test_a_missing_folder_is_told(tmp_path):
    with pytest.raises(StorageError, match="check its folder"):
        save(BNAF(2), tmp_path / "no" / "f.safetensors")
    with pytest.raises(StorageError, match="got nothing; check the path"):
        load(tmp_path / "f.safetensors")
    with pytest.raises(StorageError, match="got a folder"):
        load(tmp_path)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_refused(model_file, tmp_path, place):
    whole = model_file.read_bytes()
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(whole[: int(place * len(whole))])
    with pytest.raises(StorageError):
        load(broken)
    broken.write_bytes(whole + b"more")
    with pytest.raises(StorageError):
        load(broken)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_file_with_a_flipped_bit_is_refused(model_file, tmp_path, place, bit):
    content = bytearray(model_file.read_bytes())
    content[int(place * len(content))] ^= 1 << bit
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(content)
    with pytest.raises(StorageError):
        load(broken)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200))
def test_any_other_bytes_are_refused(tmp_path, content):
    path = tmp_path / "foreign.safetensors"
    for prefix in (b"", struct.pack("<Q", len(content))):
        path.write_bytes(prefix + content)
        with pytest.raises(StorageError):
            load(path)


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was run",))


def test_foreign_files_are_refused_and_not_run(tmp_path):
    path = tmp_path / "f.safetensors"
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(StorageError, match="no model file"):
        load(path)
    torch.save(BNAF(2, **SMALL).state_dict(), path)
    with pytest.raises(StorageError, match="no model file"):
        load(path)
    save_file({"weight": torch.zeros(3)}, path)
    with pytest.raises(
        StorageError, match=r"something else: expected metadata named 'bnaf', got no"
    ):
        load(path)
    save_file({"weight": torch.zeros(3)}, path, {"bnaf": "[" * 100_000})
    with pytest.raises(StorageError, match="no JSON"):
        load(path)
    save_file({"weight": torch.zeros(3)}, path, {"bnaf": "[]"})
    with pytest.raises(StorageError, match="no object, got list"):
        load(path)


def put(field, value):
    def change(header):
        if field in header["settings"]:
            header["settings"][field] = value
        else:
            header[field] = value

    return change


HOSTILE = {
    "features": (put("features", 10**9), r"make no BNAF of its \d+ numbers: 1000000000 is too l"),
    "negative": (put("features", -(10**9)), r"too large"),
    "width": (put("width", 4000), r"they ask for far more|do not belong together"),
    "widths": (put("width", [4000, 4000]), r"one number per hidden layer"),
    "list": (put("width", [1] * 5000), r"a list of 5,000 is too long"),
    "layers": (put("hidden_layers", 4000), r"they ask for far more|do not belong together"),
    "transforms": (put("transforms", 4000), r"they ask for far more|do not belong together"),
    "context": (put("context_layers", 4000), r"they ask for far more|do not belong together"),
    "more_features": (put("features", 4), r"expects a tensor of shape .* do not belong together"),
    "misspelt": (put("settings", {"feature": 2}), r"make no BNAF .* argument:? 'feature"),
    "bad_setting": (put("activation", "relu"), r"relu"),
    "bad_type": (put("features", "2"), r"make no BNAF .*features"),
    "no_settings": (put("settings", []), r"'settings' of type dict in its header, got list"),
    "flow": (put("flow", "os.system"), r"named 'os.system', expected .* named .*'bnaf'"),
    "kind": (put("kind", "shell"), r"holds a 'shell'"),
    "columns": (put("columns", ["a"]), r"do not fit its flow: .*must have one entry"),
    "column_names": (put("columns", [1, None]), r"names of columns must be strings"),
    "types": (put("types", ["object", "O"]), r"Types of columns must be among"),
    "scale": (put("standardisation", {"location": [0, 0], "scale": [0, 1]}), r"positive finite"),
    "digits": (put("standardisation", {"location": [10**400, 0], "scale": [1, 1]}), "do not fit"),
    "lists": (
        put("record", {"x": [[]] * 300_000}),
        r"a header with 300,0\d\d times '\[', expected 262,144",
    ),
    "strings": (
        put("record", {"x": ["ab"] * 600_000}),
        r"a header with 1,200,\d+ times '\"', expected",
    ),
    "ranges": (put("ranges", [[0.0, 1.0], [1.0, 0.0]]), r"ranges must be the least and the larg"),
    "short_ranges": (put("ranges", [[0.0], [1.0]]), r"ranges must be the least and the largest"),
    "text_ranges": (put("ranges", "0 to 1"), r"do not fit its flow"),
    "odd_ranges": (put("ranges", [[0.0, None], [1.0, "2"]]), r"finite numbers"),
    "no_scale": (put("standardisation", {"location": [0, 0]}), r"do not fit its flow: 'scale'"),
    "record": (put("record", None), r"'record' of type dict in its header, got NoneType"),
    "newer": (put("format", 99), r"format 99, written by bnaf .*; this version .* Update bnaf"),
    "older": (put("format", 0), r"format 0, which this version .* no longer reads; expected 5"),
    "format": (put("format", "one"), r"expects a format number in its header, got 'one'"),
}


class Calls(TorchFunctionMode):
    """How often torch is called."""

    count = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_a_file_of_many_small_layers_is_loaded_in_few_steps(tmp_path):
    layers = 20_000
    with without_draws():
        flow = BNAF(1, transforms=1, hidden_layers=layers, width=1)
    save(flow, tmp_path / "deep.safetensors")
    with Calls() as calls:
        again = load(tmp_path / "deep.safetensors")
    assert again.settings["hidden_layers"] == layers
    assert calls.count < 1000


def count_calls(function, *arguments):
    """Return how many functions are called meanwhile, in Python and in C."""
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        function(*arguments)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("kind", ["flow", "vae"])
def test_a_file_of_twice_the_networks_is_loaded_in_twice_the_steps(tmp_path, kind):
    parts = (torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)) if kind == "vae" else ()

    def steps(layers):
        with without_draws():
            flow = BNAF(1, 1, **SMALL, context_layers=layers, direction="sampling")
        if kind == "flow":
            save(flow, tmp_path / "f.safetensors")
        else:
            save_vae(
                VAE(parts[0], Posterior(1, 1, flow=flow), parts[1]), tmp_path / "f.safetensors"
            )
        return count_calls(load_vae if parts else load, tmp_path / "f.safetensors", *parts)

    steps(10)  # what is imported or made but once
    assert steps(300) < 2.05 * steps(150)


def test_a_file_of_too_many_tensors_is_refused(model_file, tmp_path):
    tensors = {str(number): torch.zeros(1) for number in range(10_001)}
    forged = forge(model_file, tmp_path / "forged.safetensors", tensors=tensors)
    with pytest.raises(StorageError, match=r"10,001 tensors, expected 10,000 at most"):
        load(forged)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_headers_are_refused_with_a_reason(model_file, tmp_path, name):
    change, message = HOSTILE[name]
    forged = forge(model_file, tmp_path / "forged.safetensors", change)
    with pytest.raises(StorageError, match=f"(?s){message}"):
        load(forged)


def test_a_record_too_long_to_be_read_is_not_written(tmp_path):
    model = small_model()
    model.record["x"] = ["a"] * 600_000
    with pytest.raises(StorageError, match=r"The model has a header with .* its record is too"):
        save(model, tmp_path / "m.safetensors")


def test_hostile_tensors_are_refused_with_a_reason(model_file, tmp_path):
    forged = tmp_path / "forged.safetensors"
    tensors = load_file(model_file)
    assert load(forge(model_file, forged)).columns == small_model().columns
    with pytest.raises(StorageError, match="expects no tensor 'extra', got a tensor of shape"):
        load(forge(model_file, forged, tensors={**tensors, "extra": torch.zeros(3)}))
    name = next(name for name, tensor in tensors.items() if tensor.is_floating_point())
    fewer = {other: tensor for other, tensor in tensors.items() if other != name}
    with pytest.raises(StorageError, match="got no tensor; its settings"):
        load(forge(model_file, forged, tensors=fewer))
    mixed = {**tensors, name: tensors[name].double()}
    with pytest.raises(StorageError, match="weights of one floating-point type, got"):
        load(forge(model_file, forged, tensors=mixed))
    whole = {other: tensor.int() for other, tensor in tensors.items()}
    with pytest.raises(StorageError, match=r"is of torch.int32, expected torch.float32"):
        load(forge(model_file, forged, tensors=whole))
    with pytest.raises(StorageError, match="was altered after it was saved"):
        load(forge(model_file, forged, metadata={"sha256": "0" * 64}))
    forged.write_bytes(struct.pack("<Q", 2**60) + b"{" * 100)
    with pytest.raises(StorageError, match=r"no model file: it does not begin as one"):
        load(forged)
    with forged.open("wb") as file:
        file.write(struct.pack("<Q", 2**30))
        file.truncate(2**31)  # sparse: takes no room
    with pytest.raises(StorageError, match="does not begin as one, with the length of a header"):
        load(forged)


@pytest.mark.parametrize("name", ["bnaf", "glow"])
@pytest.mark.parametrize("entry", [-1, 3, 2**62, 0])
def test_orders_that_are_no_permutations_are_refused(tmp_path, name, entry):
    path, flow = tmp_path / "f.safetensors", build(name, conditional=False).flow
    save(flow, path)
    tensors = load_file(path)
    tensors["orders"][0, 1] = entry if entry else tensors["orders"][0, 0]
    with pytest.raises(StorageError, match="orders of features in 'orders', each a permutation"):
        load(forge(path, tmp_path / "forged.safetensors", tensors=tensors))


@pytest.mark.parametrize("orders", ["members.1.orders", "numbers.orders"])
def test_orders_within_flows_made_of_others_are_permutations_too(tmp_path, orders):
    path = tmp_path / "f.safetensors"
    sizes = SMALL | {"transforms": 2}
    if orders.startswith("members"):
        save(Ensemble(1, 1, members=2, settings=sizes), path)
    else:
        save(fit_kinds(kinds_frame(40), flow_settings={"width": 2, "transforms": 2}), path)
    tensors = load_file(path)
    tensors[orders][0, 0] = -5
    with pytest.raises(StorageError, match=f"orders of features in '{orders}', each a permut"):
        load(forge(path, tmp_path / "forged.safetensors", tensors=tensors))


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_weights_that_are_not_finite_are_neither_read_nor_written(model_file, tmp_path, value):
    tensors = load_file(model_file)
    tensors["networks.weight"][0, 0] = value
    with pytest.raises(StorageError, match=r"finite weights, got others in 'networks\.weight'"):
        load(forge(model_file, tmp_path / "forged.safetensors", tensors=tensors))
    model = small_model()
    with torch.no_grad():
        model.flow.networks.weight[0, 0] = value
    with pytest.raises(StorageError, match=r"finite weights, got others in 'networks\.weight'"):
        save(model, tmp_path / "m.safetensors")


def test_a_claim_of_large_tensors_is_refused(tmp_path):
    header = {"w": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}
    text = json.dumps(header).encode()
    path = tmp_path / "f.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(64))
    with pytest.raises(StorageError, match="no model file"):
        load(path)


def test_older_formats_are_upgraded(model_file, monkeypatch):
    monkeypatch.setattr(files, "FORMAT", 6)
    with pytest.raises(StorageError, match="is of format 5, which this version"):
        load(model_file)
    monkeypatch.setitem(files.UPGRADES, 5, lambda header: {**header, "record": {"upgraded": 1}})
    assert load(model_file).record == {"upgraded": 1}


def test_hostile_files_take_no_memory(model_file, tmp_path):
    for name in ("features", "width", "layers", "transforms", "context", "lists", "strings"):
        forge(model_file, tmp_path / f"{name}.safetensors", HOSTILE[name][0])
    code = f"""
        import pathlib, resource
        import bnaf
        bnaf.load({str(model_file)!r})
        def peak():
            status = pathlib.Path("/proc/self/status")
            if status.exists():
                return int(status.read_text().split("VmHWM:")[1].split()[0]) / 1024
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
        before = peak()
        for path in pathlib.Path({str(tmp_path)!r}).iterdir():
            try:
                bnaf.load(path)
            except bnaf.StorageError:
                continue
            raise SystemExit(f"{{path}} was loaded")
        print(peak() - before)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    assert float(done.stdout) < 100


def test_a_conditional_flow_needs_its_context_after_loading(tmp_path):
    flow, context = build("bnaf", conditional=True)
    save(flow, tmp_path / "f.safetensors")
    again = load(tmp_path / "f.safetensors")
    assert again.context_features == CONTEXT_FEATURES
    assert again(context).sample((2,)).shape == (2, flow.features)


def test_a_file_is_not_replaced_unless_it_may_be(tmp_path):
    path = tmp_path / "flow.safetensors"
    save(BNAF(2, **SMALL), path, overwrite=False)
    before = path.read_bytes()
    with pytest.raises(StorageError, match=r"exists, expected a new file; .* overwrite=True"):
        save(BNAF(3, **SMALL), path, overwrite=False)
    assert path.read_bytes() == before
