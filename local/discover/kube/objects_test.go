package kube

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// FuzzDecodeObject requires that no object stops the decoder, and that what it yields is bounded by the object.
func FuzzDecodeObject(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"s"},"endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":true},"targetRef":{"kind":"Pod","name":"a"}}],"ports":[{"port":8000}]}`))
	f.Add([]byte(`{"metadata":{"name":"p","labels":{"a":"b"}},"spec":{"containers":[{"ports":[{"containerPort":8000}],"resources":{"limits":{"nvidia.com/gpu":"4"}}}]},"status":{"podIP":"fe80::1%eth0"}}`))
	f.Add([]byte(`{"metadata":{"name":"i"},"spec":{"selector":{"matchLabels":{"a":"b"}},"targetPorts":[{"number":99999}]}}`))
	f.Add([]byte(`{"endpoints":{"a":1},"ports":"x","spec":[],"status":7}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m := map[string]any{}
		if json.Unmarshal(text, &m) != nil {
			return
		}
		u := &unstructured.Unstructured{}
		if u.UnmarshalJSON(text) != nil { // a kind is required
			u.Object = m
		}
		for _, r := range []schema.GroupVersionResource{slicesResource, podsResource, poolsResource} {
			got, err := decodeObject(r, u.DeepCopy())
			o, ok := got.(*cachedObject)
			if err != nil || !ok {
				t.Fatalf("decoding gives %T, %v", got, err)
			}
			if o.err == nil && r == poolsResource && (len(o.pool.ports) == 0 || len(o.pool.ports) > 8) {
				t.Errorf("a pool has %d ports", len(o.pool.ports))
			}
			for _, e := range o.endpoints {
				if e.Address.Zone() != "" {
					t.Errorf("address %s", e.Address)
				}
			}
		}
	})
}
