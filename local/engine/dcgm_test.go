package engine

import (
	"errors"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseDCGMFiltersWorkerCards(t *testing.T) {
	const mib = 1 << 20
	all, ok := parseDCGM(readGolden(t, "dcgm.txt"), nil, GPUReadings{Cards: []GPUCard{{Name: "3", Used: 7, XID: 31}}}, testNow)
	want := []GPUCard{
		{Name: "0", Used: 75000 * mib, Free: 5120 * mib, Busy: 0.97},
		{Name: "1", Used: 75000 * mib, Free: 5120 * mib, Busy: 0.97, RemapFailed: true},
		{Name: "2", Used: 75000 * mib, Free: 5120 * mib, Busy: 0.97, XID: 79},
		{Name: "3", Used: 7, Free: 5120 * mib, Busy: 0.97}, // its blank value is ignored, and an XID without a series is cleared
	}
	if diff := cmp.Diff(GPUReadings{ReadAt: testNow, Cards: want, Ignored: 1}, all); !ok || diff != "" {
		t.Error(ok, diff)
	}
	for _, only := range [][]string{{"2"}, {"GPU-00000002-5a5a-4b4b-8c8c-123456789abc"}, {"nvidia2"}} {
		one, _ := parseDCGM(readGolden(t, "dcgm.txt"), only, GPUReadings{}, testNow)
		if diff := cmp.Diff(want[2:3], one.Cards); diff != "" {
			t.Error(only, diff)
		}
	}
	if _, ok := parseDCGM([]byte("vllm:x 1\n"), nil, GPUReadings{}, testNow); ok {
		t.Error("another's page was taken for the exporter's")
	}
}

func TestReadGPUsFromExporter(t *testing.T) {
	w := &fakeWorker{pages: map[string]string{"/metrics": string(readGolden(t, "dcgm.txt"))}}
	base := serveFakeWorker(t, "vllm", w).(*vllm).baseURL
	client := NewClient(http.DefaultClient, 2)
	e, err := NewExporter(base, []string{"1"}, client)
	if err != nil {
		t.Fatal(err)
	}
	first, err := e.ReadGPUs(t.Context(), GPUReadings{})
	if err != nil || len(first.Cards) != 1 || !first.Cards[0].RemapFailed || first.ReadAt.IsZero() {
		t.Errorf("%+v, %v", first, err)
	}
	w.setPage("/metrics", "nothing")
	if again, err := e.ReadGPUs(t.Context(), first); !errors.Is(err, ErrUnknownPage) || !cmp.Equal(again, first) {
		t.Errorf("%+v, %v", again, err)
	}
	if _, err := NewExporter("exporter:9400", nil, client); err == nil {
		t.Error("no URL was taken for one")
	}
}
