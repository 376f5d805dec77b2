/* Functions without Python: programs call them once per number, or with arguments as printf takes them. */

#include <stdarg.h>

float aclFloat16ToFloat(aclFloat16 value) {
    uint32_t sign = (uint32_t)(value & 0x8000) << 16, exponent = value >> 10 & 31, fraction = value & 0x3FF;
    uint32_t bits;
    float result;
    if (exponent == 0) {  /* zero, or fraction * 2**-24 */
        result = (float)fraction * 0x1p-24f;
        return sign ? -result : result;
    }
    bits = exponent == 31 ? 0x7F800000 | fraction << 13 : (exponent + 112) << 23 | fraction << 13;
    bits |= sign;
    memcpy(&result, &bits, sizeof result);
    return result;
}

/* Rounds to the nearest number; ties go to even. */
aclFloat16 aclFloatToFloat16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    aclFloat16 sign = (aclFloat16)(bits >> 16 & 0x8000);
    uint32_t rest = bits & 0x7FFFFFFF;
    if (rest > 0x7F800000) return (aclFloat16)(sign | 0x7C00 | rest >> 13 | 0x200);  /* a NaN stays one */
    if (rest >= 0x477FF000) return sign | 0x7C00;                                    /* rounds to infinity */
    if (rest < 0x33000001) return sign;                                              /* rounds to zero */
    uint32_t exponent = rest >> 23, fraction = (rest & 0x7FFFFF) | 0x800000;
    uint32_t shift = exponent < 113 ? 126 - exponent : 13;  /* below 2**-14 fewer bits are left */
    uint32_t kept = fraction >> shift, lost = fraction & ((1U << shift) - 1), half = 1U << (shift - 1);
    kept += lost > half || (lost == half && (kept & 1));
    if (exponent >= 113) kept += (exponent - 113) << 10;  /* the leading bit of `kept` adds 1 to the exponent */
    return (aclFloat16)(sign | kept);
}

/* A line of the program's log, on stderr. */
void aclAppLog(aclLogLevel logLevel, const char *func, const char *file, uint32_t line, const char *fmt, ...) {
    static const char *const names[] = {"DEBUG", "INFO", "WARNING", "ERROR"};
    char text[TEXT];
    va_list arguments;
    va_start(arguments, fmt);
    if (fmt == NULL || vsnprintf(text, sizeof text, fmt, arguments) < 0) copy_text(text, "(no text)");
    va_end(arguments);
    fprintf(stderr, "pooltide: [%s] %s:%u %s: %s\n", (unsigned)logLevel < 4 ? names[logLevel] : "?",
            file ? file : "?", (unsigned)line, func ? func : "?", text);
}
