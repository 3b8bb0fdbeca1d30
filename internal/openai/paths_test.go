package openai

import "testing"

func TestEncodeModels(t *testing.T) {
	for path, want := range map[string]string{"/v1/models": "", "/v1/models/m": "m", "/v1/models/org/m": "org/m"} {
		if one, ok := IsModelsPath(path); !ok || one != want {
			t.Errorf("%s: %q %v", path, one, ok)
		}
	}
	for _, path := range []string{"/v1/models/", "/v1/modelsx", "/v1/model", ""} {
		if _, ok := IsModelsPath(path); ok {
			t.Errorf("%q asks for models", path)
		}
	}
	if b, e := EncodeModels(nil, "", 7); e != nil || string(b) != `{"object":"list","data":[]}`+"\n" {
		t.Errorf("%s %v", b, e)
	}
	if b, e := EncodeModels([]string{"a", "org/m"}, "org/m", 7); e != nil || string(b) != `{"id":"org/m","object":"model","created":7,"owned_by":"spillway"}`+"\n" {
		t.Errorf("%s %v", b, e)
	}
	if _, e := EncodeModels([]string{"a"}, "b", 7); e == nil || e.Status != 404 || e.Code != CodeModelNotFound {
		t.Errorf("%v", e)
	}
}
