"""Programs for people who use or change phaze: benchmarks, stress tests, the manual; and a shell
script per model."""
