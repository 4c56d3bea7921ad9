// A decoder's forward of one token of a request, or two, in one launch of clusters of CTAs that run all
// at once, one a multiprocessor. One thread of each streams its share of all weights through shared
// memory, in the order in which the others need them; so memory does not idle where CTAs wait for each
// other, twice a layer, and those of a cluster for each other, up to five times.
#include "attention.cuh"

template <int TOKENS, bool HEAD>
struct Forward {
    Member<TOKENS>& here;
    Shared<TOKENS>& shared;

    // Tiles of eight gates and the eight that they are for, to all CTAs of the cluster.
    __device__ __forceinline__ void gate(const Held<8>& held) {
        here.template multiply_tiles<!HEAD, 1024, STAGE_BYTES / 2>(held, here.share.blocks, [&](int tile, const Sums<TOKENS>& sums) {
            Half* goal = &shared.gated[0][8 * (here.share.blocks * here.share.rank + tile)];
#pragma unroll
            for (int token = 0; token < TOKENS; ++token) {
                float norm = here.norm_of(token), gate = sums.first() * norm, up = sums.second() * norm;
                float out = __fdividef(gate, 1.0f + __expf(-gate)) * up;
                Line line;
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    line.words[place_in_unit(i)] =
                        word_of(__shfl_sync(~0u, out, 8 * i + token), __shfl_sync(~0u, out, 8 * i + 4 + token));
                if (here.lane < RANKS) here.send_to(here.lane, goal + token * (64 * MOST_BLOCKS + 8), GATED_IN, line);
            }
        });
    }

    // This cluster's columns of 256 rows, one half of them after the other.
    __device__ __forceinline__ void project_down(uint2* parts, unsigned tag) {
        int blocks = here.share.blocks, first_half = (blocks + 1) / 2;
#pragma unroll 1
        for (int first = 0; first < RANK_ROWS / 16; first += WARPS) {
            Sums<TOKENS> sums;
#pragma unroll 1
            for (int half = 0; half < 2; ++half) {
                unsigned number = here.stage + half * WARPS + here.warp;
                add_blocks(sums, half ? blocks - first_half : first_half, here.wait(number),
                           &shared.gated[0][half ? 64 * first_half : 0]);
                shared.ring.release(number);
            }
            here.template leave_part<CLUSTERS>(parts, sums, 16 * (first + here.warp), tag);
            here.stage += 2 * WARPS;
        }
    }

    // There are few different numbers of blocks, each with a loop of its own.
    __device__ __forceinline__ void add_blocks(Sums<TOKENS>& sums, int blocks, const unsigned char* rows,
                                               const Half* tokens) {
        constexpr int LEAST = HEAD ? HEAD_BLOCKS : OTHER_BLOCKS, MOST = HEAD ? MOST_HEAD_BLOCKS : OTHER_BLOCKS;
        add_if<LEAST / 2>(sums, blocks, rows, tokens) || add_if<(LEAST + 1) / 2>(sums, blocks, rows, tokens) ||
            add_if<(MOST + 1) / 2>(sums, blocks, rows, tokens);
    }

    template <int BLOCKS>
    __device__ __forceinline__ bool add_if(Sums<TOKENS>& sums, int blocks, const unsigned char* rows, const Half* tokens) {
        if (blocks != BLOCKS) return false;
        sums.template add<BLOCKS, 2048, 1024>(rows, tokens, 64 * MOST_BLOCKS + 8);
        return true;
    }

    // The last token's.
    __device__ __forceinline__ void score(const Held<8>& held, Half* logits) {
        float norm = here.norm_of(TOKENS - 1);
        here.template multiply_tiles<true, 2048, 1024>(held, here.share.tiles, [&](int tile, const Sums<TOKENS>& sums) {
            if (here.lane % 4 == TOKENS - 1) {
                Half* goal = logits + 16 * (here.share.first_tile + tile) + here.lane / 4;
                goal[0] = half_of(sums.first() * norm);
                goal[8] = half_of(sums.second() * norm);
            }
        });
    }
};

struct Step {
    const long long* token_ids;  // a stride apart
    long long token_stride;
    const long long* positions;  // the same; each is the one before or follows it
    long long position_stride;
    const long long* slot;
    Half* logits;  // [VOCAB_SIZE]

    // Without the first ones, which the cache has.
    __device__ __forceinline__ Step behind(int tokens) const {
        return {token_ids + tokens * token_stride, token_stride, positions + tokens * position_stride, position_stride,
                slot, logits};
    }

    // One that is not in the vocabulary is taken for the first.
    __device__ __forceinline__ long long token_id(int token) const {
        long long id = token_ids[token * token_stride];
        return id >= 0 && id < VOCAB_SIZE ? id : 0;
    }
    __device__ __forceinline__ long long position(int token) const { return positions[token * position_stride]; }
};

struct Model {
    const Layer* layers;     // [LAYERS]
    const Map* maps;         // see `stream`
    const Half *embedding, *norm;
    const Half* angles;      // [positions, 2, HEAD_DIM]: cosines, and sines signed for the other half
    long long max_len;       // of a slot
    float scale, eps;        // of scores, in powers of two; of norms
};

template <int TOKENS>
__device__ __forceinline__ void fill_shared(Shared<TOKENS>& shared, const Model& model, const Step& step) {
    for (int i = threadIdx.x; i < LAYERS; i += blockDim.x) shared.layers[i] = model.layers[i];
    for (int i = threadIdx.x; i < TOKENS * 2 * HEAD_DIM; i += blockDim.x) {
        int token = i / (2 * HEAD_DIM), place = i % (2 * HEAD_DIM);
        shared.angles[token][place / HEAD_DIM][place % HEAD_DIM] =
            model.angles[step.position(token) * 2 * HEAD_DIM + place];
    }
    if (threadIdx.x < TOKENS) shared.positions[threadIdx.x] = step.position(threadIdx.x);
}

// HEAD: of a cluster with a key head; the others take their first weights out of the ring while these attend.
// parts: [KEY_HEADS + 2 CLUSTERS, TOKENS, HIDDEN], numbers with tags; none has one that is above `tag`.
template <int TOKENS, bool HEAD>
__device__ __forceinline__ unsigned compute(Member<TOKENS>& here, const Model& model, const Step& step, uint2* parts,
                                            unsigned tag) {
    constexpr int SET = TOKENS * CLUSTERS * HIDDEN;
    uint2 *attended = parts, *down = parts + TOKENS * KEY_HEADS * HIDDEN;
    Shared<TOKENS>& shared = here.shared;
    Forward<TOKENS, HEAD> forward{here, shared};
    long long head = *step.slot * model.max_len * POSITION + here.share.cluster * HEAD_DIM;
    float hidden[TOKENS];
#pragma unroll
    for (int token = 0; token < TOKENS; ++token)
        hidden[token] = float_of(model.embedding[step.token_id(token) * HIDDEN + here.column()]);
    Attention<TOKENS> attention(here, model.scale);
    if (HEAD) attention.begin(shared.layers[0].cache + head);
    Half gamma = shared.layers[0].attention_norm[here.column()], mlp_gamma = shared.layers[0].mlp_norm[here.column()];
#pragma unroll 1
    for (int layer = 0; layer < LAYERS; ++layer) {
        const uint2* last_down = down + (layer + 1) % 2 * SET;
        if (layer > 0) here.template add_parts<CLUSTERS>(hidden, last_down, tag);
        if (HEAD) {
            here.share_hidden(hidden, gamma, HIDDEN_IN);
            here.await(HIDDEN_IN, layer);
            attention.project();
            here.await(HEADS_IN, layer);
            attention.attend();
            here.await(PARTS_IN, layer);
            attention.project_back(attended, tag + 1);
        }
        Half last_gamma = mlp_gamma;
        bool goes_on = layer + 1 < LAYERS;
        const Layer& next = shared.layers[goes_on ? layer + 1 : layer];
        // Asked for a whole layer before they are needed: memory is busy.
        if (HEAD) attention.begin(next.cache + head);
        gamma = (goes_on ? next.attention_norm : model.norm)[here.column()];
        mlp_gamma = next.mlp_norm[here.column()];
        Held<8> held;
        if (!HEAD) here.template hold<1024, STAGE_BYTES / 2>(held, here.share.blocks);
        here.template add_parts<KEY_HEADS>(hidden, attended, ++tag);
        here.share_hidden(hidden, last_gamma, HIDDEN_AGAIN);
        here.await(HIDDEN_AGAIN, layer);
        forward.gate(held);
        here.await(GATED_IN, layer);
        forward.project_down(down + layer % 2 * SET, ++tag);
    }
    Held<8> held;
    here.template hold<2048, 1024>(held, here.share.tiles);
    here.template add_parts<CLUSTERS>(hidden, down + (LAYERS + 1) % 2 * SET, tag);
    here.share_hidden(hidden, gamma, HIDDEN_IN);
    here.await(HIDDEN_IN, HEAD ? LAYERS : 0);
    forward.score(held, step.logits);
    return tag;
}

// By a whole CTA.
template <int TOKENS>
__device__ __forceinline__ void run(unsigned char* memory, const Model& model, const Step& step, uint2* parts,
                                    unsigned* last_tag) {
    Shared<TOKENS>& shared = *reinterpret_cast<Shared<TOKENS>*>(memory);
    int thread = threadIdx.x;
    Member<TOKENS> here{shared, Share(), thread / 32, thread % 32, model.eps};
    if (thread == 0) here.set_up();
    fill_shared(shared, model, step);
    __syncthreads();
    arrive_in_cluster();
    if (thread >= CONSUMERS) {
        leave_registers();
        if (thread == CONSUMERS) stream(shared.ring, here.share, model.maps);
        __syncwarp();
        await_cluster();
        return;
    }
    take_registers();
    await_cluster();
    unsigned tag = *last_tag;
    tag = here.share.has_head() ? compute<TOKENS, true>(here, model, step, parts, tag)
                                : compute<TOKENS, false>(here, model, step, parts, tag);
    // All others have read it, or this CTA would not have had their parts.
    if (blockIdx.x == 0 && thread == 0) *last_tag = tag;
}

// Of MOST_TOKENS tokens, or of the last one where first_is_new says that the cache has the other.
extern "C" __global__ void __cluster_dims__(RANKS, 1, 1) __launch_bounds__(CONSUMERS + STREAMERS, 1)
    forward(const Layer* layers, const Map* maps, const Half* embedding, const Half* norm, const Half* angles,
            long long max_len, float scale, float eps, const long long* token_ids, long long token_stride,
            const long long* positions, long long position_stride, const long long* slot, const long long* first_is_new,
            Half* logits, uint2* parts, unsigned* last_tag) {
    Model model{layers, maps, embedding, norm, angles, max_len, scale, eps};
    Step step{token_ids, token_stride, positions, position_stride, slot, logits};
    DYNAMIC_SHARED(memory)
    if (MOST_TOKENS == 1 || first_is_new == nullptr || *first_is_new)
        run<MOST_TOKENS>(memory, model, step, parts, last_tag);
    else
        run<1>(memory, model, step.behind(MOST_TOKENS - 1), parts, last_tag);
}
