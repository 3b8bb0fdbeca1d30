package openai

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"strings"
	"testing"
)

func dataURL(kind string, b []byte) string {
	return "data:image/" + kind + ";base64," + base64.StdEncoding.EncodeToString(b)
}

// drawn is an empty image of a size in each format that the standard library writes, and WebP's three headers.
func drawn(t *testing.T, w, h int) map[string]string {
	t.Helper()
	var p, j, g bytes.Buffer
	img := image.NewGray(image.Rect(0, 0, w, h))
	if png.Encode(&p, img) != nil || jpeg.Encode(&j, img, nil) != nil || gif.Encode(&g, img, nil) != nil {
		t.Fatal("an image could not be written")
	}
	exif := append([]byte{0xff, 0xd8, 0xff, 0xe1, 0xff, 0xff}, make([]byte, 0xfffd)...) // a segment of the greatest length
	w1, h1 := w-1, h-1
	bits := uint32(w1) | uint32(h1)<<14
	return map[string]string{
		"png": dataURL("png", p.Bytes()), "jpeg": dataURL("jpeg", j.Bytes()), "gif": dataURL("gif", g.Bytes()),
		"jpeg with metadata": dataURL("jpeg", append(exif, j.Bytes()[2:]...)),
		"webp lossy":         dataURL("webp", []byte("RIFF\x00\x00\x00\x00WEBPVP8 \x00\x00\x00\x00\x00\x00\x00\x9d\x01\x2a"+string([]byte{byte(w), byte(w >> 8), byte(h), byte(h >> 8)})+"\x00\x00")),
		"webp lossless":      dataURL("webp", []byte("RIFF\x00\x00\x00\x00WEBPVP8L\x00\x00\x00\x00\x2f"+string([]byte{byte(bits), byte(bits >> 8), byte(bits >> 16), byte(bits >> 24)})+strings.Repeat("\x00", 8))),
		"webp extended":      dataURL("webp", []byte("RIFF\x00\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00"+string([]byte{byte(w1), byte(w1 >> 8), 0, byte(h1), byte(h1 >> 8), 0})+"\x00\x00")),
	}
}

// TestAnImageCostsWhatItsDimensionsSay: in every format, from its header alone, within floor and cap.
func TestAnImageCostsWhatItsDimensionsSay(t *testing.T) {
	for _, c := range []struct{ w, h, want int }{{16, 16, leastImage}, {280, 560, 200}, {1024, 1024, 37 * 37}, {4000, 3000, greatestImage}} {
		for kind, u := range drawn(t, c.w, c.h) {
			body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"What is this?"},{"type":"image_url","image_url":{"url":"%s"}}]}]}`, u)
			var env Envelope
			if err := Scan([]byte(body), &env); err != nil {
				t.Fatal(err)
			}
			if env.Images != 1 || env.ImageTokens != c.want {
				t.Errorf("%s of %d x %d: %d images, %d tokens, want %d", kind, c.w, c.h, env.Images, env.ImageTokens, c.want)
			}
		}
	}
	whole := strings.Repeat("A", 4*157*1000)
	for u, want := range map[string]int{
		"data:":                                   leastImage,
		"data:image/png;base64,":                  leastImage,
		"data:image/avif;base64," + whole:         3000,
		"data:image/avif;base64," + whole + whole: greatestImage,
		"data:image/svg+xml," + whole[:157*200]:   200,
		dataURL("png", []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR\xff\xff\xff\xff\xff\xff\xff\xff")): leastImage,
		dataURL("gif", []byte("GIF89a\xff\xff\xff\xff\x00\x00")):                                        greatestImage,
	} {
		if got := imageTokens([]byte(u)); got != want {
			t.Errorf("%.40s: %d tokens, want %d", u, got, want)
		}
	}
}

// FuzzImageTokens: whatever the URL, the answer is within the bounds and costs no memory.
func FuzzImageTokens(f *testing.F) {
	for _, u := range []string{
		"data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAA=", "data:image/jpeg;base64,/9j/4AAQSkZJRgABAQ==", "data:image/gif;base64,R0lGODlhAQABAAAAACw=",
		"data:image/webp;base64,UklGRiQAAABXRUJQVlA4IBgAAAAwAQCdASoBAAEAAAAAACWkAANwAP77/VA=", "data:,x", "data:image/png;base64,\\/9j",
	} {
		f.Add([]byte(u))
	}
	f.Fuzz(func(t *testing.T, u []byte) {
		if n := imageTokens(u); n < leastImage || n > greatestImage {
			t.Fatalf("%d tokens", n)
		}
	})
}

func TestImageTokensAllocatesNothing(t *testing.T) {
	u := []byte(drawn(t, 300, 200)["jpeg with metadata"])
	if n := testing.AllocsPerRun(100, func() { imageTokens(u) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
