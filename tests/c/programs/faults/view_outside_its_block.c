/* says: aclnnAdaptiveAvgPool3dBackward: gradOutput reaches bytes 0 to 24 of a block of 20 bytes; it must lie inside one block.*
   warn: goes on */
#include "../setup.h"
int main(void) {
    begin();
    return gradient(numbers(5));
}
