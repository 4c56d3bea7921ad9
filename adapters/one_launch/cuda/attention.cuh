// Attention by a cluster with a key head: its CTAs project rows of queries, keys and values, share them,
// look at positions of their own, share what they have seen, and project back rows of their own.
#pragma once
#include "seen.cuh"

constexpr int SPREAD = RANKS * TEAMS * 4;  // positions that a cluster looks at in one instruction
constexpr int DEPTH = 4;                   // of these on their way at once

struct Attention {
    Member& here;
    Shared& shared;
    Half* slot;    // of the cache, its first position's key of this head
    float scale;   // of scores, in powers of two
    int first;     // position of this step
    Line keys[DEPTH], values[DEPTH];

    __device__ __forceinline__ Attention(Member& here, float scale)
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

    // Each warp has an eighth of the columns of 32 rows for queries, 8 for keys and 8 for values.
    __device__ __forceinline__ void project() {
        const Half* hidden = &shared.hidden[0][HIDDEN / WARPS * here.warp];
#pragma unroll
        for (int tile = 0; tile < HEAD_ROWS / 16; ++tile) {
            unsigned number = here.stage + tile / 2 * WARPS + here.warp;
            Sums sums;
            sums.add<4, 1024, STAGE_BYTES / 4>(here.wait(number) + tile % 2 * STAGE_BYTES / 2, hidden, HIDDEN + 8);
            if (tile > 0) shared.ring.release(number);
            int row = 16 * tile + here.lane / 4, token = here.lane % 4;
            if (token < TOKENS) {
                shared.head_sums[here.warp][row][token] = sums.first();
                shared.head_sums[here.warp][row + 8][token] = sums.second();
            }
        }
        here.stage += 2 * WARPS;
        float norms[TOKENS];
#pragma unroll
        for (int token = 0; token < TOKENS; ++token) norms[token] = here.norm_of(token);
        meet(CONSUMERS);
#pragma unroll
        for (int row = here.lane; row < HEAD_ROWS; row += 32)
#pragma unroll
            for (int token = 0; token < TOKENS; ++token) {
                float sum = 0.0f;
#pragma unroll
                for (int i = 0; i < WARPS; ++i) sum += shared.head_sums[i][row][token];
                here.send_to(here.warp, &shared.heads[token][place_of_row(row)], HEADS_IN,
                             __float_as_uint(rounded(sum * norms[token])));
            }
    }

    __device__ __forceinline__ int place_of_row(int row) const {
        if (row < 32) return 32 * here.share.rank + row;
        return (GROUP + (row - 32) / 8) * HEAD_DIM + 8 * here.share.rank + row % 8;
    }

    // Eight dimensions of a head, rotated; its other half lies HEAD_DIM / 2 away.
    __device__ __forceinline__ void rotate(int token, int head, float (&out)[8]) const {
        const float* self = &shared.heads[token][head * HEAD_DIM];
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
            rotate(which, GROUP, key);
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
            for (int query = 0; query < QUERIES; ++query) {
                rotate(token, first_query() + query, queries[query]);
#pragma unroll
                for (int i = 0; i < 8; ++i) queries[query][i] *= scale;
            }
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
        for (int i = 0; i < TOKENS * GROUP / 2; ++i) {
            int query = 2 * i + here.lane / 16, dim = here.lane % 16 * 4;
            float best, total, *part = shared.parts[here.share.rank][query];
            float4 sum = add_seen(shared.team_parts, query, dim, best, total);
            Line line = {{__float_as_uint(sum.x), __float_as_uint(sum.y), __float_as_uint(sum.z), __float_as_uint(sum.w)}};
            here.send_to(here.warp, part + dim, PARTS_IN, line);
            if (dim == 0)
                here.send_to(here.warp, part + HEAD_DIM, PARTS_IN, __float_as_uint(best), __float_as_uint(total));
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
            Sums sums;
            sums.add<4, 1024, STAGE_BYTES / 4>(rows + tile * STAGE_BYTES / 2, shared.attended[0], GROUP * HEAD_DIM + 8);
            here.leave_part<KEY_HEADS>(parts, sums, 32 * here.warp + 16 * tile, tag);
        }
        shared.ring.release(number);
        here.stage += WARPS;
    }
};
