# make run     everything, on this machine: console, gateway, worker, database; prints the addresses
# make demo    the same, and then a real vLLM with a small model, started through kvadmin
# make test    linters and tests, on services of their own
.PHONY: help run demo packages test test-all lint format venv venv-dev vllm-env messages

PY := .venv/bin/python
#: processes that share the tests
JOBS ?= 2
#: more words for pytest: make test ARGS="-k forwarded"
ARGS ?=

help:
	@sed -n 's/^# //p' Makefile

venv:
	@sh tools/venv.sh requirements.txt

venv-dev:
	@sh tools/venv.sh requirements-dev.txt

run: venv
	@$(PY) manage.py up

demo: venv
	@$(PY) manage.py demo

lint: venv-dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m djlint templates --lint --quiet

format: venv-dev
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

packages:
	@sh tools/packages.sh --refuse

test: packages lint
	$(PY) -m pytest -n $(JOBS) -m "not vllm and not browser and not slow" $(ARGS)

# what make test leaves out; the real vLLM wants the machine to itself
test-all: test vllm-env
	$(PY) -m pytest -m "vllm or browser or slow" $(ARGS)

# a real vLLM for machines without a GPU, in var/test-vllm
vllm-env: venv-dev
	@$(PY) -m tests.support.real_vllm

# what is to be translated, into locale/; manage.py prepare compiles it
messages: venv-dev
	$(PY) manage.py makemessages --locale zh_Hans --no-obsolete --add-location file --ignore var --ignore tests --ignore bench

# each module of bench/ is a command that prints its figures: make bench-poll ARGS=--json
bench-%: venv-dev
	$(PY) -m bench.$* $(ARGS)
