PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RIVALS := .venv-rivals
MIXED := .venv-mixed
INTEGRATIONS := .venv-integrations

.PHONY: install demo test test-conditions test-sanitize test-slow test-browser test-integrations lint bench bench-rivals bench-quality bench-conditional bench-mixed bench-integrations bench-rates bench-sizes bench-mechanisms docs session notebooks clean test-fuzz

install: $(VENV)/installed $(VENV)/kernels

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev,docs]"
	touch $@

# without a C++ compiler bnaf runs as plain torch
$(VENV)/kernels: $(VENV)/installed $(wildcard src/bnaf/block/kernels/*.h src/bnaf/block/kernels/*.cpp)
	-$(BIN)/python -m bnaf.block.kernels
	touch $@

demo: install
	$(BIN)/python examples/demo.py --out demo

test: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 -m "not slow and not browser"

# the same tests without kernels, with other threads, lesser processors and busy cores
CONDITIONS ?= plain threads x86-64-v2 x86-64-v3 busy
test-conditions: install
	for condition in $(CONDITIONS); do \
		echo "condition: $$condition"; \
		PYTHON=$(BIN)/python sh tests/condition.sh $$condition || exit 1; \
	done

test-slow: install
	$(BIN)/python -m pytest -m slow

test-browser: $(VENV)/browser
	$(BIN)/python -m pytest -rs -m browser tests/report/test_browser.py

# with Pyro, sbi, zuko and ONNX, in an environment of their own
test-integrations: $(INTEGRATIONS)/installed
	OMP_NUM_THREADS=1 $(INTEGRATIONS)/bin/python -m pytest -rs tests/integrations src/bnaf/integrations

$(INTEGRATIONS)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(INTEGRATIONS)
	$(INTEGRATIONS)/bin/python -m pip install --quiet --disable-pip-version-check "torch==2.13.0"
	$(INTEGRATIONS)/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[integrations]" "torch==2.13.0"
	touch $@

# which rate suits each rival, about forty minutes on a quiet machine; again goes on where it stopped
bench-rates: install
	$(BIN)/python benchmarks/rates.py --out results/rates.json

# which sizes suit our recipe, about fifteen minutes on a quiet machine; again goes on where it stopped
bench-sizes: install
	$(BIN)/python benchmarks/sizes.py --out results/sizes.json

# guides of Pyro and estimators of sbi beside ours, about an hour; again goes on where it stopped
bench-integrations: $(INTEGRATIONS)/installed
	$(INTEGRATIONS)/bin/python benchmarks/pyro_guides.py --out results/pyro_guides.json
	$(INTEGRATIONS)/bin/python benchmarks/simulators.py --out results/simulators.json

# the driver alone: the browser is Debian's chromium
$(VENV)/browser: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[browser]"
	touch $@

# mutated model files, checkpoints, tables and commands: about ten minutes, ends with a count
FUZZ_CASES ?= 10000
FUZZ_SEED ?= 0
test-fuzz: install
	$(BIN)/python tests/fuzz.py --cases $(FUZZ_CASES) --seed $(FUZZ_SEED)

# the kernels with gcc's sanitizers of addresses and of undefined behaviour, in a cache of their own
SANITIZED := BNAF_CACHE=$(VENV)/sanitized BNAF_MARCH=x86-64-v3 \
	BNAF_CXXFLAGS="-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all"
test-sanitize: install
	$(SANITIZED) LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
		ASAN_OPTIONS=detect_leaks=0 $(BIN)/python -m bnaf.block.kernels
	$(SANITIZED) LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
		ASAN_OPTIONS=detect_leaks=0 OMP_NUM_THREADS=2 $(BIN)/python -m pytest -q -m "not slow" \
		tests/block tests/model/test_files.py tests/test_fuzz.py

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: install
	$(BIN)/python benchmarks/training.py --libraries bnaf "bnaf plain" --out results/training.json
	$(BIN)/python benchmarks/sampling.py --libraries mlp bnaf --out results/sampling.json
	$(BIN)/python benchmarks/contexts.py --out results/contexts.json
	$(BIN)/python benchmarks/growth.py --out results/growth.json
	$(BIN)/python benchmarks/loop.py --out results/loop.json
	$(BIN)/python benchmarks/intervals.py --out results/intervals.json
	$(BIN)/python benchmarks/small_tables.py --out results/small_tables.json

# context mechanisms compared, about 20 minutes; again goes on where it stopped
bench-mechanisms: install
	$(BIN)/python benchmarks/mechanisms.py --data $(DATA) --out results/mechanisms.json

bench-rivals: $(RIVALS)/installed
	$(RIVALS)/bin/python benchmarks/rivals_training.py --out results/rivals_training.json
	$(RIVALS)/bin/python benchmarks/sampling.py --out results/rivals_sampling.json

# two and a half hours on a quiet machine; again goes on where it stopped
bench-quality: $(RIVALS)/installed
	$(RIVALS)/bin/python benchmarks/quality.py --data $(DATA) --seconds 300 --out results/quality.json

# p(y | x) beside rivals, about ten hours; again goes on where it stopped
bench-conditional: $(RIVALS)/installed
	$(RIVALS)/bin/python benchmarks/conditional.py --data $(DATA) --out results/conditional.json

$(RIVALS)/installed: pyproject.toml benchmarks/rivals-requirements.txt
	$(PYTHON) -m venv $(RIVALS)
	$(RIVALS)/bin/python -m pip install --quiet --disable-pip-version-check --requirement benchmarks/rivals-requirements.txt
	$(RIVALS)/bin/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

# rows of every kind beside rivals, about half a day; again goes on where it stopped
bench-mixed: $(MIXED)/installed
	$(MIXED)/bin/python benchmarks/mixed.py --data $(DATA) --out results/mixed.json

# torch first, so that nothing else chooses its build; what mostlyai-engine has for images may be of another, and is not needed
$(MIXED)/installed: pyproject.toml benchmarks/mixed-requirements.txt
	$(PYTHON) -m venv $(MIXED)
	$(MIXED)/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(MIXED)/bin/python -m pip install --quiet --disable-pip-version-check --requirement benchmarks/mixed-requirements.txt
	$(MIXED)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio
	$(MIXED)/bin/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

docs: install
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

# the commands in the guides to tables, run anew, and what they print; DATA has wa_churn.csv.gz, ...
session: install
	$(BIN)/python docs/session.py --data $(DATA) docs/tables.md docs/real_tables.md

# the guides as notebooks, executed
notebooks: install
	$(BIN)/python docs/notebooks.py --out docs/notebooks docs/tables.md docs/models.md docs/simulators.md

clean:
	rm -rf $(VENV) $(RIVALS) $(MIXED) $(INTEGRATIONS) docs/_build docs/notebooks demo
