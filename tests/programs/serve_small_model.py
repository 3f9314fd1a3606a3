"""Serve the model at the path given, on a free port of loopback, until stdin ends.

The first line on stdout is the server's address. One thread computes, and none of them polls.
Whatever is asked, a sentence comes back and the model ends it by itself: a grammar sees to that,
so that tests can count on an end, though not on a word of it.
"""

from __future__ import annotations

import os
import sys

import xllamacpp

SENTENCE = 'root ::= [A-Z] [a-z ]{12,40} "."'
CONTEXT_TOKENS = 4096


def main(path: str, name: str) -> None:
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.model_alias = {name}
    params.n_ctx = CONTEXT_TOKENS
    params.fit_params = False
    params.n_gpu_layers = 0
    params.warmup = False
    params.ui = False
    params.verbosity = 0
    params.n_threads_http = 4
    for threads in (params.cpuparams, params.cpuparams_batch):
        threads.n_threads = 1
        threads.poll = 0
    params.sampling.temp = 0
    kind = xllamacpp.common_grammar_type.COMMON_GRAMMAR_TYPE_USER
    params.sampling.grammar = xllamacpp.CommonGrammar(kind, SENTENCE)
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()
    os._exit(0)  # nothing to save, and a thread may still be at work


if __name__ == "__main__":
    main(*sys.argv[1:])
