"""The words of a page of tables; this module refuses to hold a figure."""

PAGE = """\
# Benchmark of the {name} pair

The lossless policies on a pair trained for this comparison, which does not come with the package.
[Benchmark](benchmark.md) tells what the figures mean and what the tables are modelled on, and
[the bundled pair](bundled-pair.md) how such pairs are trained.

## The pair

{how}

{sizes}

Held-out loss and agreement are measured as for [the bundled pair](bundled-pair.md):

{measures}

{agreement}

```{{include}} data/benchmark-{name}-where.md
```

Each figure of speed is of one run, after a rehearsal of the same requests, by a process alone on
its GPU. Throughput counts entering the prompts, too, and whatever else the host's cores did
meanwhile; a run is short. A median ITL is of all steps of a run, and so says more about what a step
takes; but a host that is disturbed for half a run shows there, too. At one K all policies ask
nearly the same of the GPU, and of the host a little more where more tokens come out: take larger
differences for noise.

## Against strict

In parentheses the difference to strict, in points for rates.

```{{include}} data/benchmark-{name}-strict.md
```

Acceptance lengths by prompts, K = 3:

```{{include}} data/benchmark-{name}-datasets.md
```

![Acceptance per position](figures/benchmark-{name}-acceptance.svg)

## Against K

"Of plain at that pace" is the acceptance length over the median ITL, as a multiple of plain
decoding's.

```{{include}} data/benchmark-{name}-lengths.md
```

![Throughput against K](figures/benchmark-{name}-throughput.svg)

## Greedy and sampled requests in one batch

Acceptance lengths, K = 3:

```{{include}} data/benchmark-{name}-greedy.md
```

## Set rates

Synthetic acceptance, K = 3:

```{{include}} data/benchmark-{name}-synthetic.md
```
"""
