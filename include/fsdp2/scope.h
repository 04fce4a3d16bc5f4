/* Scopes: tensors that are destroyed together, such as those that one forward has made. */
#ifndef FSDP2_SCOPE_H_
#define FSDP2_SCOPE_H_

#include "base.h"

FSDP2_BEGIN_DECLS

/* Creates an empty scope. The tensors in it are destroyed with its last handle; those that have
 * been destroyed by themselves before are fine. Any thread may use a scope while others do. */
FSDP2_CALL fsdp2_scope_create(fsdp2_scope* out);
/* Leaves handles of yours to the scope; those of the library (in a callback) stay the library's,
 * and do not belong here. They stay valid for as long as the scope lives. */
FSDP2_CALL fsdp2_scope_add(fsdp2_scope scope, const fsdp2_tensor* tensors, size_t n_tensors);
/* Takes handles out of the scope: they are yours again. FSDP2_E_NOT_FOUND, with nothing changed, if
 * one is not in it. */
FSDP2_CALL fsdp2_scope_keep(fsdp2_scope scope, const fsdp2_tensor* tensors, size_t n_tensors);
FSDP2_API fsdp2_status fsdp2_scope_destroy(fsdp2_scope scope);
/* Returns another handle to the same scope; see convention 2 of fsdp2.h. */
FSDP2_CALL fsdp2_scope_duplicate(fsdp2_scope scope, fsdp2_scope* out);

FSDP2_END_DECLS

#endif /* FSDP2_SCOPE_H_ */
