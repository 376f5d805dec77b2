/* says: aclnnAdaptiveAvgPool3dBackward: gradOutput has 24 bytes that were never written, the first at byte 0 of a block of 24 bytes at 0x*; they must be written before they are read.
   warn: goes on */
#include "../setup.h"
int main(void) {
    begin();
    return gradient(device(24));
}
