"""The four image sets, from small files of their formats."""

import pickle

import numpy as np
import pickles
import pytest
from scipy.io import savemat

from bnaf import SettingsError, TableError
from bnaf.datasets.images import IMAGE_FILES, prepare_images
from bnaf.datasets.known import known_data


def place(folder, name, index=0):
    path = folder / IMAGE_FILES[name][index]
    path.parent.mkdir(exist_ok=True)
    return path


def draw(rows, columns=784):
    return np.random.default_rng(rows).integers(0, 2, size=(rows, columns), dtype=np.uint8)


def sizes(parts):
    return [len(part) for part in parts]


def transposed(rows):
    return rows.reshape(-1, 28, 28).transpose(0, 2, 1).reshape(-1, 784)


def test_mnist_is_read_from_text(tmp_path):
    for index, rows in enumerate((5, 3, 2)):
        np.savetxt(place(tmp_path, "mnist", index), draw(rows), fmt="%d")
    parts = prepare_images("mnist", tmp_path)
    assert parts.train.types[0] == "uint8"
    for part, rows in zip(parts, (5, 3, 2), strict=True):
        np.testing.assert_array_equal(part.rows, draw(rows))


def test_omniglot_is_grey_and_turned_upright(tmp_path):
    seen, test = draw(1350) / 4, draw(6) / 4
    savemat(place(tmp_path, "omniglot"), {"data": seen.T, "testdata": test.T})
    parts = prepare_images("omniglot", tmp_path)
    assert sizes(parts) == [5, 1345, 6]
    np.testing.assert_array_equal(parts.valid.rows, transposed(seen)[5:])
    np.testing.assert_array_equal(parts.test.rows, transposed(test))


def test_caltech_is_turned_upright_with_one_for_the_object(tmp_path):
    arrays = {"train_data": draw(4), "val_data": draw(3), "test_data": draw(2)}
    savemat(place(tmp_path, "caltech"), arrays)
    parts = prepare_images("caltech", tmp_path)
    for part, rows in zip(parts, (4, 3, 2), strict=True):
        np.testing.assert_array_equal(part.rows, 1 - transposed(draw(rows)))


def test_frey_faces_are_shuffled_and_cut(tmp_path):
    faces = np.arange(410 * 560, dtype=np.float32).reshape(410, 560)
    place(tmp_path, "freyfaces").write_bytes(pickle.dumps([faces], protocol=3))
    parts = prepare_images("freyfaces", tmp_path)
    assert sizes(parts) == [10, 200, 200]
    rows = np.concatenate([part.rows for part in parts])
    assert (rows[:, 0] != faces[:, 0]).any()
    np.testing.assert_array_equal(rows[rows[:, 0].argsort()], faces)


@pytest.mark.parametrize(("split", "seed"), [(0, 123), (1, 321), (2, 231)])
def test_frey_faces_are_shuffled_as_published(tmp_path, split, seed):
    faces = np.arange(410 * 560, dtype=np.float32).reshape(410, 560)
    place(tmp_path, "freyfaces").write_bytes(pickle.dumps([faces], protocol=2))
    parts = prepare_images("freyfaces", tmp_path, split=split)
    published = faces.copy()
    np.random.RandomState(seed).shuffle(published)
    np.testing.assert_array_equal(np.concatenate([part.rows for part in parts]), published)


@pytest.mark.parametrize(
    "hostile",
    [
        b"cos\nsystem\n(S'true'\ntR.",
        b"cnumpy\nload\n(S'x'\ntR.",
        pickle.dumps([{"faces": 1}], protocol=2),
        pickle.dumps([np.array([None, print], dtype=object)], protocol=2),
        pickle.dumps([np.zeros(3)], protocol=2),
        pickle.dumps("x" * 100, protocol=2)[:-20],
        pickles.called("numpy.core.multiarray._reconstruct", pickles.constant(0))
        + pickles.tied(*map(pickles.constant, (1, (1,), "f8", False, "x" * 8)))
        + b"b.",
        b"",
    ],
)
def test_hostile_pickles_are_refused(tmp_path, hostile):
    place(tmp_path, "freyfaces").write_bytes(hostile)
    with pytest.raises(TableError):
        prepare_images("freyfaces", tmp_path)


def test_a_pickle_of_something_else_runs_nothing(tmp_path):
    place(tmp_path, "freyfaces").write_bytes(b"cbuiltins\nprint\n(S'run'\ntR.")
    with pytest.raises(TableError, match=r"arrays and frames alone, got builtins\.print"):
        prepare_images("freyfaces", tmp_path)


def test_files_that_are_missing_or_something_else_are_told(tmp_path):
    with pytest.raises(SettingsError, match=r"must be one of mnist, .* got 'iris'"):
        prepare_images("iris", tmp_path)
    with pytest.raises(SettingsError, match="split must be below 3 for freyfaces, got 3"):
        prepare_images("freyfaces", tmp_path, split=3)
    with pytest.raises(TableError, match=r"caltech expects a file at .*split1\.mat, got nothing"):
        prepare_images("caltech", tmp_path)
    for name, content in (("mnist", "0 1 7"), ("omniglot", "no matlab"), ("freyfaces", "no")):
        for index in range(len(IMAGE_FILES[name])):
            place(tmp_path, name, index).write_text(content)
        with pytest.raises(TableError, match=f"is not the public file of {name}"):
            prepare_images(name, tmp_path)


def test_images_that_are_not_there_are_not_found(tmp_path):
    images = [known for known in known_data() if known.kind == "images"]
    assert len(images) == 4
    assert not any(known.found(tmp_path) for known in images)
