// Threads of execution that take turns on one thread of the operating system. Where the processor is
// known, a turn makes no system call: swapcontext makes some, and millions of turns are taken.
#pragma once
#include <cstddef>

#if defined(__x86_64__)

// Go on at a place, and keep where this one was left.
extern "C" void switch_to(void** keep, void* place);
asm(R"(
.globl switch_to
.hidden switch_to
switch_to:
    push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp
    ret
)");

// The place at which a function begins that never returns. The stack is aligned as calls leave it.
static void* place_of(void (*enter)(), char* stack, size_t size) {
    void** top = reinterpret_cast<void**>(stack + size) - 3;
    *--top = reinterpret_cast<void*>(enter);
    return top - 6;
}

#else
#include <ucontext.h>

static void switch_to(void** keep, void* place) {
    ucontext_t here;
    *keep = &here;
    swapcontext(&here, static_cast<ucontext_t*>(place));
}

static void* place_of(void (*enter)(), char* stack, size_t size) {
    auto* context = reinterpret_cast<ucontext_t*>(stack);
    getcontext(context);
    context->uc_stack.ss_sp = stack + sizeof *context;
    context->uc_stack.ss_size = size - sizeof *context;
    context->uc_link = nullptr;
    makecontext(context, enter, 0);
    return context;
}

#endif
