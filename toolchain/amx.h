/* llama.cpp asks for the macros that GCC and later versions of clang define; earlier ones spell them without the
 * second underscore, and AMX would silently be left out. */
#if defined(__AMXTILE__) && !defined(__AMX_TILE__)
#define __AMX_TILE__ 1
#endif
#if defined(__AMXINT8__) && !defined(__AMX_INT8__)
#define __AMX_INT8__ 1
#endif
#if defined(__AMXBF16__) && !defined(__AMX_BF16__)
#define __AMX_BF16__ 1
#endif
