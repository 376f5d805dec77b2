#include <acl/acl.h>
#include <aclnnop/aclnn_avgpool2d_backward.h>
#include <chrono>
#include <cstdio>
#include <vector>
#include <algorithm>
int main() {
  aclInit(nullptr); aclrtSetDevice(0); aclrtStream s; aclrtCreateStream(&s);
  int64_t gs[]={1,16,1,1}, xs[]={1,16,4,4}, k[]={4,4}, st[]={1,1}, p[]={0,0};
  std::vector<float> h(256,1);
  void *g,*x; aclrtMalloc(&g,64,ACL_MEM_MALLOC_HUGE_FIRST); aclrtMalloc(&x,1024,ACL_MEM_MALLOC_HUGE_FIRST);
  aclrtMemcpy(g,64,h.data(),64,ACL_MEMCPY_HOST_TO_DEVICE);
  auto tg=aclCreateTensor(gs,4,ACL_FLOAT,nullptr,0,ACL_FORMAT_NCHW,gs,4,g), tx=aclCreateTensor(xs,4,ACL_FLOAT,nullptr,0,ACL_FORMAT_NCHW,xs,4,x);
  auto K=aclCreateIntArray(k,2), S=aclCreateIntArray(st,2), P=aclCreateIntArray(p,2);
  void *w=nullptr; uint64_t cap=0;
  std::vector<double> t;
  for (int i=0;i<2000;i++) {
    auto b=std::chrono::steady_clock::now();
    uint64_t n; aclOpExecutor *e;
    int r=aclnnAvgPool2dBackwardGetWorkspaceSize(tg,tx,K,S,P,false,true,0,0,tx,&n,&e);
    if(r){printf("%d %s\n",r,aclGetRecentErrMsg());return 1;}
    if(n>cap){aclrtMalloc(&w,n,ACL_MEM_MALLOC_HUGE_FIRST);cap=n;}
    r=aclnnAvgPool2dBackward(w,n,e,s); if(r) return 2;
    if(aclrtSynchronizeStream(s)) return 3;
    t.push_back(std::chrono::duration<double,std::micro>(std::chrono::steady_clock::now()-b).count());
  }
  std::sort(t.begin()+100,t.end());
  printf("median %.1f us, p90 %.1f, max %.1f, workspace %lu\n",t[100+950],t[100+1710],t.back(),(unsigned long)cap);
  aclrtFree(g);aclrtFree(x); if(w)aclrtFree(w);
}
