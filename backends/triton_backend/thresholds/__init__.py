"""Stage 2, if some request has filters: min-p, top-k and top-p as one threshold per row."""
