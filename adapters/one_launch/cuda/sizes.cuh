// Which share of a decoder each CTA has. Refuses to move data.
#pragma once
#include "numbers.cuh"

constexpr int RANKS = 8, WARPS = 8, CONSUMERS = 32 * WARPS;
// One of them streams; registers are handed out to as many at a time, and these leave theirs to consumers.
constexpr int STREAMERS = 128;
constexpr int HIDDEN = 2048, INNER = 8192, QUERY_HEADS = 32, KEY_HEADS = 8, HEAD_DIM = 64;
constexpr int GROUP = QUERY_HEADS / KEY_HEADS, HEADS = GROUP + 2;
constexpr int POSITION = 2 * KEY_HEADS * HEAD_DIM;  // numbers of the cache
constexpr int RANK_ROWS = HIDDEN / RANKS;           // hidden states of each CTA of a cluster

// As many clusters as there are key heads have one each, and with it less of the columns of `down`,
// which are shared 64 at a time; some of these have one block more than HEAD_BLOCKS, so that the others
// have the same.
constexpr int BLOCKS = INNER / 64, OTHERS = CLUSTERS - KEY_HEADS;
constexpr int OTHER_BLOCKS = (BLOCKS - KEY_HEADS * HEAD_BLOCKS) / OTHERS;
constexpr int MORE = (BLOCKS - KEY_HEADS * HEAD_BLOCKS) % OTHERS;
static_assert(MORE <= KEY_HEADS, "one each");
constexpr int MOST_HEAD_BLOCKS = HEAD_BLOCKS + (MORE > 0);
constexpr int MOST_BLOCKS = MOST_HEAD_BLOCKS > OTHER_BLOCKS ? MOST_HEAD_BLOCKS : OTHER_BLOCKS;

struct Layer {
    const Half *attention_norm, *mlp_norm;
    Half* cache;  // [slots, max_len, 2 KEY_HEADS, HEAD_DIM]
};

struct Share {
    int rank, cluster;
    int first_block, blocks;  // of the cluster; of each, this CTA has a tile of 8 gates and the 8 they are for
    int first_tile, tiles;    // of 16 rows of the LM head

    __device__ __forceinline__ Share() {
        rank = rank_in_cluster();
        cluster = blockIdx.x / RANKS;
        int other = cluster - KEY_HEADS;
        first_block = has_head() ? cluster * HEAD_BLOCKS + min(cluster, MORE)
                                 : KEY_HEADS * HEAD_BLOCKS + MORE + other * OTHER_BLOCKS;
        blocks = has_head() ? HEAD_BLOCKS + (cluster < MORE) : OTHER_BLOCKS;
        long long all = VOCAB_SIZE / 16;
        first_tile = int(all * blockIdx.x / gridDim.x);
        tiles = int(all * (blockIdx.x + 1) / gridDim.x) - first_tile;
    }

    __device__ __forceinline__ bool has_head() const { return cluster < KEY_HEADS; }
};
