"""Programs for people who use or change phaze: benchmarks, stress tests, the fuzzer; and a shell
script per model."""
