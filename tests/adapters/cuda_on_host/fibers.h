// A fiber for each thread of each CTA, which gives way where a thread would wait. Refuses to show
// races: fibers run one at a time, in an order that a seed changes.
#pragma once
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "switch_to.h"

static void expect_that(bool holds, const char* what) {
    if (holds) return;
    fprintf(stderr, "on the host: %s\n", what);
    abort();
}

// Given by macros: CLUSTER, CLUSTERS, CTA_THREADS, SHARED_BYTES.
constexpr int CTAS = CLUSTER * CLUSTERS, CTA_WARPS = CTA_THREADS / 32;
constexpr long STACK = 24576, MOST_ROUNDS = 1000000;

struct Meeting {
    int count = 0;
    unsigned short times = 0;
};

struct Warp {
    Meeting meeting;
    unsigned words[2][32][6];  // In turn: nobody is two collectives behind.
};

struct Cta {
    unsigned char* memory;
    Meeting all, consumers;
    Warp warps[CTA_WARPS];
};

struct Fiber {
    void* stack;
    int cta, thread;
    bool done;
    // Nothing to do while this is so.
    const unsigned short* watched;
    unsigned short number;
    bool waits() const { return watched && *watched == number; }
};

struct Index {
    int x;
};

static Cta ctas[CTAS];
static Meeting clusters[CLUSTERS];
static std::vector<Fiber> fibers;
static Fiber* running;
static void* scheduler;
static void (*kernel)();

#define threadIdx (Index{running->thread})
#define blockIdx (Index{running->cta})
#define blockDim (Index{CTA_THREADS})
#define gridDim (Index{CTAS})

static __attribute__((noinline)) void give_way() {
    Fiber* self = running;
    switch_to(&self->stack, scheduler);
}

// Until it is another number.
static void wait_while(const unsigned short& watched, unsigned short number) {
    Fiber* self = running;
    self->number = number;
    self->watched = &watched;
    while (self->waits()) give_way();
    self->watched = nullptr;
}

static void enter() {
    kernel();
    running->done = true;
    for (;;) give_way();
}

static Cta& my_cta() { return ctas[running->cta]; }

static void meet_at(Meeting& meeting, int number) {
    unsigned short times = meeting.times;
    if (++meeting.count == number) {
        meeting.count = 0;
        ++meeting.times;
    }
    wait_while(meeting.times, times);
}

// Run all CTAs to their end. In each round some warps have to wait, as the seed says.
static void run_all(void (*what)(), unsigned seed, int waiting_of_four) {
    kernel = what;
    srand(seed);
    fibers.assign(CTAS * CTA_THREADS, Fiber());
    std::fill(clusters, clusters + CLUSTERS, Meeting());
    long bytes = CTAS * CTA_THREADS * STACK;
    char* stacks = (char*)mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    unsigned char* memory = (unsigned char*)aligned_alloc(1024, (long)CTAS * SHARED_BYTES);
    memset(memory, 0xff, (long)CTAS * SHARED_BYTES);
    for (int i = 0; i < CTAS; ++i) {
        ctas[i] = Cta();
        ctas[i].memory = memory + (long)i * SHARED_BYTES;
    }
    for (int i = 0; i < CTAS * CTA_THREADS; ++i) {
        void* place = place_of(enter, stacks + i * STACK, STACK);
        fibers[i] = {place, i / CTA_THREADS, i % CTA_THREADS, false};
    }
    int left = CTAS * CTA_THREADS;
    for (long round = 0; left > 0; ++round) {
        expect_that(round < MOST_ROUNDS, "somebody waits for ever");
        for (int warp = 0; warp < CTAS * CTA_WARPS; ++warp) {
            if (rand() % 4 < waiting_of_four) continue;
            for (int lane = 0; lane < 32; ++lane) {
                running = &fibers[32 * warp + lane];
                if (running->done || running->waits()) continue;
                switch_to(&scheduler, running->stack);
                left -= running->done;
            }
        }
    }
    munmap(stacks, bytes);
    free(memory);
}
