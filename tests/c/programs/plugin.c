/* Opens the library at run time with RTLD_LOCAL, as a plug-in. */
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **arguments) {
    void *library = count == 2 ? dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library == NULL) return 2;
    int (*init)(const char *) = (int (*)(const char *))dlsym(library, "aclInit");
    int (*finalize)(void) = (int (*)(void))dlsym(library, "aclFinalize");
    int status = init(NULL);
    printf("aclInit: %d\n", status);
    return status != 0 || finalize() != 0;
}
