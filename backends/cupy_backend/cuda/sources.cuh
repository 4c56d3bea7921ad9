// Where candidates for a threshold come from: each thread of a team visits its share.
#pragma once
#include "filters.cuh"

struct FromList {
    const Candidates& found;
    int count;
    template <typename TeamT, typename Visit>
    __device__ void each(const TeamT& team, Visit visit) const {
        for (int i = team.thread(); i < count; i += TeamT::THREADS) visit(found.logits[i]);
    }
};

// A row's logits, among them all from `floor` on.
template <typename T>
struct FromRow {
    const Row<T>& row;
    const Mass* stats;
    float floor;
    template <typename TeamT, typename Visit>
    __device__ void each(const TeamT& team, Visit visit) const {
        visit_blocks(team, row, stats, floor, [&](int, const float(&logits)[PER_LANE]) {
#pragma unroll
            for (int j = 0; j < PER_LANE; ++j) visit(logits[j]);
        });
    }
};
