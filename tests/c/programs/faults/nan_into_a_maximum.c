/* says: aclnnMaxPool2dWithIndices: self has NaN; since CANN 9.0 it must have neither NaN nor -Inf on this product.
   warn: goes on */
#include "../maximum.h"
int main(void) { return pool(NAN); }
