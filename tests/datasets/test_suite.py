"""The five tables of the literature, from small files of their formats."""

import pickle
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pickles
import pytest
import torch
from near import assert_near
from patches import with_few_patches
from PIL import Image

from bnaf import SettingsError, TableError
from bnaf.datasets import _loaders
from bnaf.datasets.known import known_data
from bnaf.datasets.patches import HELD_IMAGES, Pool, draw_patches, read_pools
from bnaf.datasets.suite import SUITE, find_edition, patch_pools, prepare_table, read_suite
from bnaf.errors import TableWarning

GAS_NAMES = ["Time", "Meth", "Eth", *(f"S{number}" for number in range(1, 17))]


def place(folder, name, index=0, edition=0):
    path = folder / SUITE[name].editions[edition].files[index]
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def draw(rows, columns, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, columns))


def draw_gas(rows=100):
    """Return 19 columns, of which 3 are labels and 8 are copies of others."""
    values = draw(rows, 19)
    values[:, 11:] = values[:, 3:11] + 1e-3 * draw(rows, 8, seed=1)
    return values


def sizes(parts):
    return [len(part) for part in parts]


def stacked(parts):
    return np.vstack([part.rows for part in parts])


def test_power_is_shuffled_spread_and_standardised_without_the_test_rows(tmp_path):
    raw = draw(200, 8).round(1)
    np.save(place(tmp_path, "power"), raw)
    parts, exact, exactness = read_suite("power", tmp_path)
    assert sizes(parts) == [162, 18, 20]
    assert not exact
    assert exactness == "200 rows of 2,049,280 in the literature"
    assert parts.train.columns[0] == "active_power"
    rows = stacked(parts)
    np.testing.assert_allclose(rows[:180].mean(0), 0, atol=1e-9)
    np.testing.assert_allclose(rows[:180].std(0), 1)
    shuffled = raw.copy()
    np.random.RandomState(42).shuffle(shuffled)
    minutes = shuffled[:, 7]
    expected = (minutes - minutes[:180].mean()) / minutes[:180].std()
    assert_near(rows[:, 5], expected)


def test_power_draws_its_noise_in_the_order_of_the_literature(tmp_path):
    raw = np.zeros((50, 8))
    np.save(place(tmp_path, "power"), raw)
    draws = np.random.RandomState(42)
    draws.shuffle(raw)
    voltage, active, meters = (draws.rand(50, columns) for columns in (1, 1, 3))
    noise = np.hstack([0.001 * active, 0.01 * voltage, meters])
    with np.errstate(invalid="ignore"), pytest.raises(TableError, match="finite numbers alone"):
        read_suite("power", tmp_path)  # the minute is constant
    np.save(place(tmp_path, "power"), np.hstack([raw[:, :7], np.arange(50.0)[:, None]]))
    rows = stacked(read_suite("power", tmp_path).parts)[:, :5]
    expected = (noise - noise[:45].mean(0)) / noise[:45].std(0)
    assert_near(rows, expected)


@pytest.mark.parametrize("name", ["power", "miniboone"])
def test_a_table_is_the_same_to_the_bit_every_time(tmp_path, name):
    np.save(place(tmp_path, name), draw(100, 8 if name == "power" else 43))
    first, second = (stacked(read_suite(name, tmp_path).parts) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def check_gas(parts, values):
    assert sizes(parts) == [81, 9, 10]
    kept = values[:, 11:]  # the first of each pair is dropped
    expected = (kept - kept.mean(0)) / kept.std(0, ddof=1)
    assert_near(stacked(parts), expected)


@pytest.mark.parametrize("protocol", range(6))
def test_gas_drops_labels_and_columns_that_nearly_equal_another(tmp_path, protocol):
    values = draw_gas()
    frame = pd.DataFrame(values, columns=GAS_NAMES)
    frame["S16"] = frame.pop("S16")  # in a block of its own
    place(tmp_path, "gas").write_bytes(pickle.dumps(frame, protocol=protocol))
    parts = read_suite("gas", tmp_path).parts
    check_gas(parts, values)
    assert parts.train.columns == tuple(GAS_NAMES[11:])


def test_gas_is_read_from_a_frame_whose_names_are_objects(tmp_path):
    frame = pd.DataFrame(draw_gas(), columns=np.array(GAS_NAMES, object))
    frame.columns = frame.columns.astype(object)
    frame.to_pickle(place(tmp_path, "gas"))
    check_gas(read_suite("gas", tmp_path).parts, draw_gas())


def test_gas_is_read_as_pandas_wrote_it_under_python_2(tmp_path):
    content = pickles.old_frame(np.ascontiguousarray(draw_gas().T), GAS_NAMES)
    place(tmp_path, "gas").write_bytes(content)
    parts = read_suite("gas", tmp_path).parts
    check_gas(parts, draw_gas())
    assert parts.train.columns == tuple(GAS_NAMES[11:])


def test_gas_is_read_from_the_text_of_uci_where_there_is_no_frame(tmp_path):
    header = "Time (seconds), CO conc (ppm), Ethylene conc (ppm), sensor readings (16 channels)"
    text = place(tmp_path, "gas", edition=1)
    np.savetxt(text, draw_gas(), fmt="%.10f", header=header, comments="")
    table = read_suite("gas", tmp_path)
    check_gas(table.parts, np.round(draw_gas(), 10))
    assert not table.exact
    assert table.exactness.startswith("100 rows in order of time, of which the literature has ")
    text.write_text("1 2 3\n4 5 6\n")
    with pytest.raises(TableError, match=r"ethylene_CO\.txt is not .* expected 19 columns, got 3"):
        read_suite("gas", tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        pickles.called("posix.system", pickles.constant("touch ran")),
        pickles.called("builtins.eval", pickles.constant("open('ran', 'w')")),
        pickles.called(
            "numpy.testing._private.utils.runstring",
            *(pickles.constant(one) for one in ("open('ran', 'w')", {})),
        ),
        pickles.called("pandas.eval", pickles.constant("@open('ran', 'w')")),
        pickles.named("pandas.DataFrame")
        + pickles.called("os.system", pickles.text(b"touch ran")),
        pickles.made("pandas.DataFrame") + pickles.constant({"_mgr": 1}) + b"b",
        pickles.made("pandas.DataFrame") + pickles.constant([0]) + b"b",
        pickles.called("numpy._core.multiarray._reconstruct", pickles.constant(1)),
        pickles.called("builtins.bytearray", pickles.constant(2**62)),
        pickles.constant({"a": 1}),
        pickles.named("_codecs.encode") + pickles.constant({"__doc__": "changed"}) + b"b",
        pickles.named("copyreg._reconstructor") + pickles.constant({"_call": 1}) + b"b",
        pickles.old_frame(np.empty((0, 10**13)), ["a"]),
        b"\x8e" + b"\xff" * 7 + b"\x0f",
        b"(" * 1000,
    ],
)
def test_a_hostile_pickle_runs_nothing_and_is_refused(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    place(tmp_path, "gas").write_bytes(b"\x80\x04" + content + b".")
    with pytest.raises(TableError, match=r"pickle is not the public file of gas: "):
        read_suite("gas", tmp_path)
    assert not Path("ran").exists()


def test_a_frame_of_text_or_of_other_columns_is_refused(tmp_path):
    path = place(tmp_path, "gas")
    pd.DataFrame({"Time": [1.0]}).to_pickle(path)
    with pytest.raises(TableError, match=r"expected a column 'Meth', got Time\."):
        read_suite("gas", tmp_path)
    frame = pd.DataFrame(draw_gas(), columns=GAS_NAMES)
    frame["Time"] = pd.Series(["now"] * 100, dtype=object)
    frame.to_pickle(path)
    with pytest.raises(TableError, match="is not the public file of gas"):
        read_suite("gas", tmp_path)
    frame = pd.DataFrame(draw(100, 19), columns=GAS_NAMES)
    frame.to_pickle(path)
    with pytest.raises(TableError, match=r"expected rows of 8 columns, got shape \(81, 16\)"):
        read_suite("gas", tmp_path)


def test_hepmass_keeps_signal_rows_and_features_that_do_not_repeat(tmp_path):
    for index, extra in enumerate((0, 1)):
        rows = draw(120, 29 + extra, seed=index)
        rows[:, 0] = np.arange(120) % 2
        rows[:, 2:9] = rows[:, 2:9].clip(min=0)
        header = ",".join(f"f{column}" for column in range(29))  # the extra one has no name
        path = place(tmp_path, "hepmass", index)
        np.savetxt(path, rows, delimiter=",", header=header, comments="# ")
    parts = read_suite("hepmass", tmp_path).parts
    assert parts.train.columns == ("f0", *(f"f{index}" for index in range(8, 28)))
    assert sizes(parts) == [54, 6, 60]
    np.testing.assert_allclose(stacked(parts)[:60].mean(0), 0, atol=1e-9)
    raw = draw(120, 30, seed=1)[1::2, [1, *range(9, 29)]]
    seen = draw(120, 29)[1::2, [1, *range(9, 29)]]
    expected = (raw - seen.mean(0)) / seen.std(0, ddof=1)
    assert_near(parts.test.rows, expected)


def test_miniboone_is_cut_in_order(tmp_path):
    rows = draw(100, 43)
    np.save(place(tmp_path, "miniboone"), rows)
    expected = (rows - rows[:90].mean(0)) / rows[:90].std(0)
    assert_near(stacked(read_suite("miniboone", tmp_path).parts), expected)


def test_miniboone_is_read_in_parts_where_the_whole_is_not_there(tmp_path):
    for index, rows in enumerate((9, 3, 2)):
        np.save(place(tmp_path, "miniboone", index, edition=1), draw(rows, 43, seed=index))
    table = read_suite("miniboone", tmp_path)
    assert table.exactness == "14 rows of 36,488 in the literature"
    np.testing.assert_array_equal(table.parts.test.rows, draw(2, 43, seed=2))


def test_bsds300_is_taken_as_it_is(tmp_path):
    h5py = pytest.importorskip("h5py", reason="BSDS300 is an HDF5 file")
    with h5py.File(place(tmp_path, "bsds300"), "w") as file:
        for key, rows in (("train", 9), ("validation", 3), ("test", 2)):
            file[key] = draw(rows, 63)
    assert sizes(read_suite("bsds300", tmp_path).parts) == [9, 3, 2]


def write_patches(folder, seed=0):
    """Write patches as their public file comes, 90, 30 and 20 of them."""
    h5py = pytest.importorskip("h5py", reason="BSDS300 is an HDF5 file")
    parts = [draw(rows, 63, seed + rows) / 10 for rows in (90, 30, 20)]
    with h5py.File(place(folder, "bsds300"), "w") as file:
        for key, rows in zip(("train", "validation", "test"), parts, strict=True):
            file[key] = rows
    return parts


@pytest.fixture
def published_patches(monkeypatch, tmp_path):
    """Write patches, and have them be the published ones."""
    train, _, test = (torch.from_numpy(rows) for rows in write_patches(tmp_path))
    law = torch.distributions.MultivariateNormal(train.mean(0), train.T.cov(correction=0))
    monkeypatch.setattr(_loaders, "PATCH_COUNTS", (90, 30, 20))
    monkeypatch.setattr(_loaders, "PATCH_GAUSSIAN", round(law.log_prob(test).mean().item(), 2))
    known = with_few_patches(7, 2, 3)._replace(rows=(90, 30, 20))
    monkeypatch.setitem(SUITE, "bsds300", known)
    return tmp_path


def test_published_patches_are_told_by_the_score_of_a_gaussian(published_patches):
    table = read_suite("bsds300", published_patches)
    assert (table.exact, table.exactness) == (True, "rows as published")


def test_as_many_patches_as_published_need_not_be_the_published_ones(published_patches):
    write_patches(published_patches, seed=1)
    table = read_suite("bsds300", published_patches)
    assert not table.exact
    assert table.exactness == "140 rows of unknown origin, where the literature has 140"


def test_patches_are_drawn_from_images_rather_than_read_where_they_are_no_published_ones(
    published_patches,
):
    store_images(published_patches, draw_images(4), draw_images(2, seed=1))
    assert read_suite("bsds300", published_patches).exact
    assert patch_pools(published_patches).train.heights.tolist() == [9, 9]
    write_patches(published_patches, seed=1)
    assert read_suite("bsds300", published_patches).exactness.startswith("patches redrawn")
    place(published_patches, "bsds300").write_bytes(b"no HDF5")
    assert find_edition("bsds300", published_patches).redrawn


def test_bsds300_names_the_extra_that_it_needs(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    place(tmp_path, "bsds300").write_bytes(b"HDF")
    with pytest.raises(TableError, match=r"needs h5py, got none; pip install 'bnaf\[hdf5\]'\.$"):
        read_suite("bsds300", tmp_path)


def draw_images(count, height=9, width=10, seed=0):
    generator = np.random.default_rng(seed)
    return generator.integers(0, 256, (count, height, width), dtype=np.uint8)


def test_a_patch_is_spread_centred_and_loses_its_last_pixel():
    images = draw_images(3)
    places = np.array([[0.5, 0.6, 0.9], [0.99, 0.0, 0.0]])  # image, row and column as shares
    noise = np.random.default_rng(1).random((2, 64))
    rows = Pool.of(list(images)).cut(places, noise)
    corners = [images[1, 1:9, 2:10], images[2, 0:8, 0:8]]
    levels = (np.stack([corner.reshape(64) for corner in corners]) + noise) / 256
    expected = (levels - levels.mean(1, keepdims=True))[:, :63]
    np.testing.assert_allclose(rows, expected, atol=1e-7)


def store_images(folder, train, test):
    path = place(folder, "bsds300", edition=2)
    np.savez(path, train=train, test=test)
    return path


def numbered_images(count, first=0):
    """Return dark images whose first pixel is their number."""
    images = np.zeros((count, 8, 8), np.uint8)
    images[:, 0, 0] = np.arange(first, first + count)
    return images


def test_patches_are_the_same_every_time(tmp_path):
    pools = read_pools(store_images(tmp_path, draw_images(4), draw_images(2, seed=1)))
    first, second = (draw_patches(pools, (400, 300, 200)) for _ in range(2))
    assert [rows.shape for rows in first] == [(400, 63), (300, 63), (200, 63)]
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


def test_patches_to_choose_by_come_from_images_of_their_own(tmp_path):
    images = numbered_images(5 * HELD_IMAGES)
    pools = read_pools(store_images(tmp_path, images, numbered_images(50, first=200)))
    numbers = [rows[:, 0] * 256 for rows in draw_patches(pools, (2000, 500, 500))]
    train, valid, test = (np.round(one * 64 / 63) for one in numbers)  # the mean is taken off
    assert train.max() < 5 * HELD_IMAGES - HELD_IMAGES + 2
    assert valid.min() > 4 * HELD_IMAGES - 2
    assert test.min() > 198


def test_bsds300_is_drawn_anew_from_images(tmp_path, monkeypatch):
    monkeypatch.setitem(SUITE, "bsds300", with_few_patches(70, 20, 30))
    store_images(tmp_path, draw_images(4), draw_images(2, seed=1))
    table = read_suite("bsds300", tmp_path)
    assert not table.exact
    told = (
        "patches redrawn from the images, validation from the last of those to train on, 120 rows"
    )
    assert table.exactness == told
    assert sizes(table.parts) == [70, 20, 30]


def test_images_of_several_sizes_are_read_from_folders(tmp_path):
    for index, shapes in enumerate(([(9, 12), (12, 9), (8, 8)], [(10, 10)])):
        folder = place(tmp_path, "bsds300", index, edition=1)
        folder.mkdir()
        (folder / "notes.txt").write_text("no image")
        for number, shape in enumerate(shapes):
            levels = np.full(shape, 50 * number + 10, np.uint8)
            Image.fromarray(levels).save(folder / f"{number}.png")
    assert find_edition("bsds300", tmp_path).redrawn
    pools = patch_pools(tmp_path)
    assert pools.train.heights.tolist() == [9, 12]
    assert pools.valid.pixels[0, 0, 0] == 110
    (rows,) = (draw_patches(pools, (200, 1, 1))[0],)
    assert abs(rows).max() <= 1 / 256  # every image is flat: no patch looks beyond one


def test_fresh_patches_follow_from_the_generator(tmp_path):
    pool = Pool.of(list(draw_images(3)))
    first, same, other = (pool.draw(5, torch.Generator().manual_seed(s)) for s in (0, 0, 1))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert first.shape == (5, 63)
    with pytest.raises(TableError, match=r"drawn from its images, expected at .* got none; fetch"):
        patch_pools(tmp_path)


def test_images_that_are_none_are_told(tmp_path):
    path = store_images(tmp_path, draw_images(4, height=7), draw_images(2))
    with pytest.raises(TableError, match="expected grey images of at least 8 by 8 pixels"):
        read_suite("bsds300", tmp_path)
    np.savez(path, train=draw_images(4) / 2, test=draw_images(2))
    with pytest.raises(TableError, match="expected images of 8 bits"):
        read_suite("bsds300", tmp_path)


def test_a_table_that_is_not_that_of_the_literature_is_warned_of(tmp_path):
    np.save(place(tmp_path, "miniboone"), draw(100, 43))
    with pytest.warns(TableWarning, match=r"100 rows of 36,488 in .*; compare models with each"):
        assert sizes(prepare_table("miniboone", tmp_path)) == [81, 9, 10]


def test_files_that_are_missing_or_something_else_are_told(tmp_path):
    with pytest.raises(SettingsError, match=r"must be one of power, gas, .* got 'iris'"):
        read_suite("iris", tmp_path)
    with pytest.raises(
        TableError, match=r"power expects a file at .*data\.npy, got nothing; fetch"
    ):
        read_suite("power", tmp_path)
    path = place(tmp_path, "power")
    path.write_text("no array")
    with pytest.raises(TableError, match="is not the public file of power"):
        read_suite("power", tmp_path)
    np.save(path, draw(10, 7))
    with pytest.raises(TableError, match=r"expected 8 columns of numbers, got shape \(10, 7\)"):
        read_suite("power", tmp_path)


def test_every_table_of_the_suite_is_known():
    known = {entry.name: entry for entry in known_data()}
    for name, published in SUITE.items():
        assert known[name].rows == sum(published.rows)
        assert known[name].columns == published.columns
        editions = (known[name].files, *known[name].others)
        assert editions == tuple(edition.files for edition in published.editions)


def test_what_is_missing_is_told_unless_another_edition_is_there(tmp_path):
    (hepmass,) = [entry for entry in known_data() if entry.name == "hepmass"]
    place(tmp_path, "hepmass").write_text("rows")
    assert hepmass.missing(tmp_path) == ("hepmass/1000_test.csv",)
    assert hepmass.missing(None) == hepmass.files
    (gas,) = [entry for entry in known_data() if entry.name == "gas"]
    assert not gas.found(tmp_path)
    place(tmp_path, "gas", edition=1).write_text("rows")
    assert gas.missing(tmp_path) == ()
