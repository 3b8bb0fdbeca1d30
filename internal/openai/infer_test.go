package openai_test

import (
	"testing"

	"github.com/spillway-lb/spillway/internal/openai"
)

func TestModelFromPath(t *testing.T) {
	for path, want := range map[string]string{
		"/v2/models/resnet/infer": "resnet", "/v2/models/org%2Fbge/infer": "org/bge", "/v2/models/resnet/versions/3/infer": "resnet",
	} {
		if got, ok := openai.ModelFromPath(path); !ok || got != want {
			t.Errorf("%s names %q, %v", path, got, ok)
		}
	}
	for _, path := range []string{"/v2/models//infer", "/v2/models/a", "/v2/models/a/ready", "/v2/models/a/versions/infer", "/v2/models/a/versions/1/2/infer", "/v1/models/a/infer", "/v2/models/a%zz/infer", ""} {
		if got, ok := openai.ModelFromPath(path); ok {
			t.Errorf("%s names %q", path, got)
		}
	}
	if got := openai.ReplacePathModel("/v2/models/fast/versions/3/infer", "org/bge"); got != "/v2/models/org%2Fbge/versions/3/infer" {
		t.Errorf("path is %s", got)
	}
}
