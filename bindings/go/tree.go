package fsdp2

import "sync/atomic"

// tree is the children of a custom module and how many open objects run it: its modules, shards, optimizers and steps. The last of them
// closes the children. It cannot be left to the collector: a child's handle keeps the whole alive, and with it the forward that holds
// the child.
type tree struct {
	owners   int32
	children []*handle
}

// join returns the tree, for one more owner; nil is that of a module that has no children of the program's.
func (t *tree) join() *tree {
	if t != nil {
		atomic.AddInt32(&t.owners, 1)
	}
	return t
}

func (t *tree) leave() {
	if t == nil || atomic.AddInt32(&t.owners, -1) > 0 {
		return
	}
	for _, child := range t.children {
		child.close()
	}
}

// adopt takes over the module's handle and those of its children.
func (t *tree) adopt(child *Module) {
	t.children = append(t.children, &handle{id: child.id, kind: child.kind})
	child.kind = nil
	if child.tree != nil {
		t.children = append(t.children, child.tree.children...)
		child.tree.children = nil
	}
}
