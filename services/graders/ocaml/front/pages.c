/* What a fork of a server costs: the tables of its pages are copied, and each page that the child uses or that either of the
   two writes is a fault of some microseconds. So a server keeps what it has in huge pages of 2 MB, each of which is one entry
   in place of 512, and its minor heap is not copied at all. Where the kernel has no huge pages, nothing but speed is lost. */

#define _GNU_SOURCE
#define CAML_INTERNALS
#define CAML_NAME_SPACE
#include <caml/version.h>
#include <caml/mlvalues.h>
#include <caml/fail.h>
#include <caml/minor_gc.h>
#include <caml/domain.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define PAGE ((uintptr_t)4096)
#define HUGE_PAGE ((uintptr_t)1 << 21)
#define DOWN(address, page) ((uintptr_t)(address) & ~((page) - 1))
#define UP(address, page) DOWN((uintptr_t)(address) + (page) - 1, page)

extern char __executable_start, __etext, __data_start, _end; /* of the linker */

static char *heap;
static uintptr_t small;

/* All of the heap in one piece, which begins with a huge page. */
__attribute__((constructor)) static void gather_heap(void)
{
    mallopt(M_MMAP_MAX, 0);
    heap = (char *)UP(sbrk(0), HUGE_PAGE);
    if (!malloc(heap - (char *)sbrk(0))) /* kept: address space without memory */
        abort();
}

/* Huge pages in place of a file's, from [from] to [end], with the same content up to [till]. */
static void copy_to_huge_pages(uintptr_t from, uintptr_t till, uintptr_t end, int protection)
{
    if (from >= till)
        return;
    size_t size = end - from;
    char *space = mmap(NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (space == MAP_FAILED)
        return;
    char *copy = (char *)UP(space, HUGE_PAGE), *after = copy + size;
    munmap(space, copy - space);
    munmap(after, space + HUGE_PAGE - copy);
    madvise(copy, size, MADV_HUGEPAGE);
    memcpy(copy, (void *)from, till - from);
    if (mprotect(copy, size, protection) || mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)from) == MAP_FAILED)
        munmap(copy, size);
}

/* What was split since, as both a child and its parent wrote there, is put together again. */
CAMLprim value gradus_collapse(value unit)
{
    uintptr_t end = DOWN(Caml_state_field(young_start), HUGE_PAGE);
    if (end > (uintptr_t)heap)
        madvise(heap, end - (uintptr_t)heap, MADV_COLLAPSE);
    return unit;
}

/* Once a server has all that its children need. Segments begin at huge pages (toolchain.py), so what follows the program's
   text up to the next one is free. A child allocates the first [small_kb] in small pages: to clear a huge one costs more. */
CAMLprim value gradus_settle(value small_kb)
{
    uintptr_t start = UP(Caml_state_field(young_start), PAGE), end = DOWN(Caml_state_field(young_end), PAGE);
    small = (uintptr_t)Long_val(small_kb) << 10;
    copy_to_huge_pages(UP(&__executable_start + 1, HUGE_PAGE), (uintptr_t)&__etext, UP(&__etext, HUGE_PAGE), PROT_READ | PROT_EXEC);
    copy_to_huge_pages(DOWN(&__data_start, HUGE_PAGE), DOWN(&_end, HUGE_PAGE), DOWN(&_end, HUGE_PAGE), PROT_READ | PROT_WRITE);
    gradus_collapse(Val_unit);
    madvise((void *)start, end - start, MADV_WIPEONFORK);
    madvise((void *)start, DOWN(end - small, HUGE_PAGE) - start, MADV_HUGEPAGE);
    mallopt(M_MMAP_MAX, 65536);
    return Val_unit;
}

/* Before a fork: nothing is left in the minor heap. */
CAMLprim value gradus_empty_minor_heap(value unit)
{
#if OCAML_VERSION >= 50000
    caml_empty_minor_heaps_once();
#else
    caml_empty_minor_heap();
#endif
    return unit;
}

/* In the child, whose minor heap is empty: whatever the kernel can do, nothing of the parent's is left there. What is skipped
   so that a huge page follows [small], 2 MB at most, is never used. */
CAMLprim value gradus_new_minor_heap(value unit)
{
    uintptr_t start = UP(Caml_state_field(young_start), PAGE), end = DOWN(Caml_state_field(young_end), PAGE);
    uintptr_t from = DOWN(end - small, HUGE_PAGE) + small;
    if (madvise((void *)start, end - start, MADV_DONTNEED))
        caml_failwith("memory could not be cleared");
    if (from > start)
        Caml_state_field(young_ptr) = (void *)from;
    return unit;
}
