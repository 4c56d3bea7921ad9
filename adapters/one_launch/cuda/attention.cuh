// Attention by a cluster with a key head: its CTAs project rows of queries, keys and values, share them,
// look at positions of their own, share what they have seen, and project back rows of their own.
#pragma once
#include "seen.cuh"

constexpr int SPREAD = RANKS * TEAMS * 4;  // positions that a cluster looks at in one instruction
constexpr int DEPTH = 4;                   // of these on their way at once

template <int TOKENS>
struct Attention {
    Member<TOKENS>& here;
    Shared<TOKENS>& shared;
    Half* slot;    // of the cache, its first position's key of this head
    float scale;   // of scores, in powers of two
    int first;     // position of this step
    Line keys[DEPTH], values[DEPTH];

    __device__ __forceinline__ Attention(Member<TOKENS>& here, float scale)
        : here(here), shared(here.shared), scale(scale), first(int(here.shared.positions[0])) {}

    // What earlier steps have left in a layer's cache is asked for long before this step's queries are there.
    __device__ __forceinline__ void begin(Half* slot_of_layer) {
        slot = slot_of_layer;
        load(0);
    }

    __device__ __forceinline__ int dim() const { return here.lane % 8 * 8; }
    __device__ __forceinline__ int team() const { return here.warp / TEAM; }
    __device__ __forceinline__ int first_query() const { return here.warp % TEAM * QUERIES; }

    __device__ __forceinline__ int position(int begin, int i) const {
        return begin + i * SPREAD + (here.share.rank * TEAMS + team()) * 4 + here.lane / 8;
    }

    __device__ __forceinline__ void load(int begin) {
#pragma unroll
        for (int i = 0; i < DEPTH; ++i) {
            const Half* from = slot + (long long)position(begin, i) * POSITION + dim();
            keys[i] = values[i] = Line{{0, 0, 0, 0}};
            if (position(begin, i) < first) {
                keys[i] = load_line(from);
                values[i] = load_line(from + KEY_HEADS * HEAD_DIM);
            }
        }
    }

    // Each warp has an eighth of the columns of 32 rows for queries, 8 for keys and 8 for values. Rows I and I + 16
    // for queries are dimensions that are rotated together.
    __device__ __forceinline__ void project() {
        const Half* hidden = &shared.hidden[0][HIDDEN / WARPS * here.warp];
#pragma unroll
        for (int tile = 0; tile < HEAD_ROWS / 16; ++tile) {
            bool of_two = tile == 2;  // warps' keys and values
            unsigned number = here.stage + (of_two ? WARPS + here.warp / 2 : here.warp);
            Sums<TOKENS> sums;
            sums.template add<4, 1024, STAGE_BYTES / 4>(
                here.wait(number) + (of_two ? here.warp % 2 : tile) * STAGE_BYTES / 2, hidden, HIDDEN + 8);
            if (tile == 1) shared.ring.release(number);
            int row = 16 * tile + here.lane / 4, token = here.lane % 4;
            if (token < TOKENS) {
                shared.head_sums[here.warp][row][token] = sums.first();
                shared.head_sums[here.warp][row + 8][token] = sums.second();
            }
        }
        float norms[TOKENS];
#pragma unroll
        for (int token = 0; token < TOKENS; ++token) norms[token] = here.norm_of(token);
        meet(CONSUMERS);
        if (here.warp % 2 == 0) shared.ring.release(here.stage + WARPS + here.warp / 2);
        here.stage += WARPS + WARPS / 2;
#pragma unroll
        for (int token = 0; token < TOKENS; ++token) {
            send_query(token, found(here.lane, token, norms[token]));
            if (here.lane < 16)
                send_head(token, GROUP + here.lane / 8, 8 * here.share.rank + here.lane % 8,
                          found(32 + here.lane, token, norms[token]));
        }
    }

    // What all warps' columns of a row are together.
    __device__ __forceinline__ float found(int row, int token, float norm) const {
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < WARPS; ++i) sum += shared.head_sums[i][row][token];
        return rounded(sum * norm);
    }

    __device__ __forceinline__ void send_head(int token, int head, int place, float number) {
        here.send_to(here.warp, &shared.heads[token][head * HEAD_DIM + place], HEADS_IN, __float_as_uint(number));
    }

    // Rotated and scaled, in the order in which `query` reads.
    __device__ __forceinline__ void send_query(int token, float number) {
        float other = __shfl_xor_sync(~0u, number, 16);
        int dim = here.share.rank % 2 * 16 + here.lane % 16 + here.lane / 16 * (HEAD_DIM / 2);
        float cosine = float_of(shared.angles[token][0][dim]), sine = float_of(shared.angles[token][1][dim]);
        int place = dim / 4 % 2 * (HEAD_DIM / 2) + dim / 8 * 4 + dim % 4;
        send_head(token, here.share.rank / 2, place, (number * cosine + other * sine) * scale);
    }

    // Eight dimensions; at once lanes read what lies side by side.
    __device__ __forceinline__ void query(int token, int head, float (&out)[8]) const {
        const float* first = &shared.heads[token][head * HEAD_DIM + here.lane % 8 * 4];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float4 four = *reinterpret_cast<const float4*>(first + half * HEAD_DIM / 2);
            out[4 * half] = four.x;
            out[4 * half + 1] = four.y;
            out[4 * half + 2] = four.z;
            out[4 * half + 3] = four.w;
        }
    }

    // Eight dimensions of a key, rotated; its other half lies HEAD_DIM / 2 away.
    __device__ __forceinline__ void rotate(int token, float (&out)[8]) const {
        const float* self = &shared.heads[token][GROUP * HEAD_DIM];
        float cosines[8], sines[8];
        unpack(*reinterpret_cast<const Line*>(&shared.angles[token][0][dim()]), cosines);
        unpack(*reinterpret_cast<const Line*>(&shared.angles[token][1][dim()]), sines);
#pragma unroll
        for (int i = 0; i < 8; ++i)
            out[i] = self[dim() + i] * cosines[i] + self[(dim() + HEAD_DIM / 2) % HEAD_DIM + i] * sines[i];
    }

    // This step's tokens. Of those at one position the last one stays. Nobody reads them from the cache
    // before the next forward.
    __device__ __forceinline__ void look_at_new(Seen& seen, const float (&queries)[QUERIES][8], int token) const {
#pragma unroll
        for (int which = 0; which < TOKENS; ++which) {
            long long at = shared.positions[which];
            bool stays = which == TOKENS - 1 || at != shared.positions[(which + 1) % TOKENS];
            bool there = here.lane < 8 && stays && at <= shared.positions[token];
            float key[8];
            rotate(which, key);
            const float* value = &shared.heads[which][(GROUP + 1) * HEAD_DIM + dim()];
            Line key_line[1], value_line[1];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                key_line[0].words[i] = word_of(key[2 * i], key[2 * i + 1]);
                value_line[0].words[i] = word_of(value[2 * i], value[2 * i + 1]);
            }
            seen.look<1>(queries, key_line, value_line, [&](int) { return there; });
            if (here.lane < 8 && stays && token == 0 && here.warp % TEAM == 0) {
                Half* goal = slot + at * POSITION + dim();
                *reinterpret_cast<Line*>(goal) = key_line[0];
                *reinterpret_cast<Line*>(goal + KEY_HEADS * HEAD_DIM) = value_line[0];
            }
        }
    }

    __device__ __forceinline__ void look_at_all(Seen& seen, const float (&queries)[QUERIES][8], int token) {
        for (int begin = 0; begin < first; begin += DEPTH * SPREAD) {
            if (begin > 0 || (token > 0 && first > DEPTH * SPREAD)) load(begin);
            auto there = [&](int i) { return position(begin, i) < first; };
            if (first <= begin + DEPTH / 2 * SPREAD)
                seen.look<DEPTH / 2>(queries, keys, values, there);
            else
                seen.look<DEPTH>(queries, keys, values, there);
        }
        if (here.share.rank == RANKS - 1 && team() == TEAMS - 1) look_at_new(seen, queries, token);
    }

    __device__ __forceinline__ void attend() {
#pragma unroll 1
        for (int token = 0; token < TOKENS; ++token) {
            float queries[QUERIES][8];
#pragma unroll
            for (int i = 0; i < QUERIES; ++i) query(token, first_query() + i, queries[i]);
            Seen seen;
            look_at_all(seen, queries, token);
            seen.merge();
            if (here.lane < 8)
#pragma unroll
                for (int query = 0; query < QUERIES; ++query)
                    seen.keep(query, shared.team_parts[team()][token * GROUP + first_query() + query]);
        }
        meet(CONSUMERS);
#pragma unroll
        for (int token = 0; token < TOKENS; ++token) {
            // Each warp has half of a query; eight lanes send it to the same two.
            int query = token * GROUP + here.warp / 2, dim = here.warp % 2 * 32 + here.lane % 8 * 4;
            float best, total, *part = shared.parts[here.share.rank][query];
            float4 sum = add_seen(shared.team_parts, query, dim, best, total);
            Line line = {{__float_as_uint(sum.x), __float_as_uint(sum.y), __float_as_uint(sum.z), __float_as_uint(sum.w)}};
#pragma unroll
            for (int peer = here.lane / 8; peer < RANKS; peer += 4) {
                here.send_to(peer, part + dim, PARTS_IN, line);
                if (dim == 0)
                    here.send_to(peer, part + HEAD_DIM, PARTS_IN, __float_as_uint(best), __float_as_uint(total));
            }
        }
    }

    // What all CTAs have seen, and 256 rows of the projection back, 32 of each warp.
    __device__ __forceinline__ void project_back(uint2* parts, unsigned tag) {
        for (int i = threadIdx.x; i < TOKENS * GROUP * HEAD_DIM / 4; i += CONSUMERS) {
            int query = i / 16, dim = i % 16 * 4;
            float best, total;
            float4 sum = add_seen(shared.parts, query, dim, best, total);
            Half* unit = &shared.attended[query / GROUP][query % GROUP * HEAD_DIM + dim / 8 * 8];
            unsigned* words = reinterpret_cast<unsigned*>(unit) + dim / 4 % 2;
            words[0] = word_of(__fdividef(sum.x, total), __fdividef(sum.y, total));
            words[2] = word_of(__fdividef(sum.z, total), __fdividef(sum.w, total));
        }
        meet(CONSUMERS);
        unsigned number = here.stage + here.warp;
        const unsigned char* rows = here.wait(number);
#pragma unroll
        for (int tile = 0; tile < 2; ++tile) {
            Sums<TOKENS> sums;
            sums.template add<4, 1024, STAGE_BYTES / 4>(rows + tile * STAGE_BYTES / 2, shared.attended[0],
                                                        GROUP * HEAD_DIM + 8);
            here.template leave_part<KEY_HEADS>(parts, sums, 32 * here.warp + 16 * tile, tag);
        }
        shared.ring.release(number);
        here.stage += WARPS;
    }
};
