package kube

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// DeepCopyObject makes cachedObject a runtime.Object, which the cache requires. Cached objects are never changed.
func (o *cachedObject) DeepCopyObject() runtime.Object { return o }

// GetObjectKind is required of a runtime.Object.
func (o *cachedObject) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }
