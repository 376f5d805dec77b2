/* says: aclmdlLoadFromFile: it belongs to offline models, which pooltide does not have; the program must do without it. [207000 ACL_ERROR_RT_FEATURE_NOT_SUPPORT]
   warn: fails */
#include "../setup.h"
int main(void) {
    uint32_t model = 0;
    begin();
    return aclmdlLoadFromFile("model.om", &model) != 0;
}
