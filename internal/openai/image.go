package openai

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
)

// What an image costs a vision model, in prompt tokens, before its engine has said so. Models differ by a factor of ten; the
// formula is that of Qwen2-VL and Qwen2.5-VL (model card, "Image Resolution for performance boost": one token for 28 x 28
// pixels), which most engines serve. Anthropic's documentation says width x height / 750, which is within 5 % of it, and
// OpenAI's 85 for an image of low detail, which is the floor here. The cap is 1,024 x 1,024 pixels in patches of 16, the most
// that Pixtral takes (model card). Larger images are scaled down by the engine.
const (
	imagePatch    = 28 // pixels of one token's side
	leastImage    = 85
	greatestImage = 4096
	// imageBytes is how many bytes one token's pixels take in a photograph whose dimensions cannot be read: 784 pixels at
	// about 1.6 bits each, as JPEG has them at quality 80.
	imageBytes = 157
)

// imageTokens is what the image of a data: URL costs: by its dimensions where its header can be read, else by its bytes.
func imageTokens(url []byte) int {
	i := bytes.IndexByte(url, ',')
	if i < 0 {
		return leastImage
	}
	head, text := url[:i], url[i+1:]
	if !bytes.HasSuffix(head, []byte(";base64")) {
		return clampImage(len(text) / imageBytes)
	}
	w, h := imageSize(encoded(text))
	if w == 0 || h == 0 {
		return clampImage(len(text) / 4 * 3 / imageBytes)
	}
	// A side is capped before they are multiplied: a header may say anything.
	w, h = min(w, imagePatch*greatestImage), min(h, imagePatch*greatestImage)
	return clampImage(((w + imagePatch - 1) / imagePatch) * ((h + imagePatch - 1) / imagePatch))
}

func clampImage(n int) int { return max(leastImage, min(n, greatestImage)) }

// encoded is base64 text of which any part can be read without decoding the rest.
type encoded []byte

// read decodes the bytes from offset on into p; false when there are not as many, or they are not base64.
func (e encoded) read(p []byte, offset int) bool {
	var group [3]byte
	for n := range p {
		at := offset + n
		if n == 0 || at%3 == 0 {
			i := at / 3 * 4
			if i < 0 || i+4 > len(e) {
				return false
			}
			if got, err := base64.StdEncoding.Decode(group[:], e[i:i+4]); err != nil || got < 3 && at%3 >= got {
				return false
			}
		}
		p[n] = group[at%3]
	}
	return true
}

// maxSegments bounds the segments of a JPEG before the one that holds its size: metadata comes in a few.
const maxSegments = 64

// imageSize reads the dimensions from the header of a PNG, GIF, WebP or JPEG; zeros when it is none of them.
func imageSize(e encoded) (width, height int) {
	var b [30]byte
	if !e.read(b[:12], 0) {
		return 0, 0
	}
	switch {
	case string(b[:8]) == "\x89PNG\r\n\x1a\n":
		if e.read(b[:24], 0) && string(b[12:16]) == "IHDR" {
			return side(binary.BigEndian.Uint32(b[16:])), side(binary.BigEndian.Uint32(b[20:]))
		}
	case string(b[:6]) == "GIF87a", string(b[:6]) == "GIF89a":
		return int(binary.LittleEndian.Uint16(b[6:])), int(binary.LittleEndian.Uint16(b[8:]))
	case string(b[:4]) == "RIFF" && string(b[8:12]) == "WEBP":
		if e.read(b[:30], 0) {
			return webpSize(b[12:])
		}
	case b[0] == 0xff && b[1] == 0xd8:
		return jpegSize(e)
	}
	return 0, 0
}

// side is a dimension; 0 when no image can have it.
func side(v uint32) int {
	if v > 1<<24 {
		return 0
	}
	return int(v)
}

// webpSize reads the first chunk of a WebP: its name, its length, and what it begins with.
func webpSize(b []byte) (width, height int) {
	switch string(b[:4]) {
	case "VP8 ": // after three bytes of a frame's tag and its start code
		if b[11] == 0x9d && b[12] == 0x01 && b[13] == 0x2a {
			return int(binary.LittleEndian.Uint16(b[14:])) & 0x3fff, int(binary.LittleEndian.Uint16(b[16:])) & 0x3fff
		}
	case "VP8L":
		if b[8] == 0x2f {
			bits := binary.LittleEndian.Uint32(b[9:])
			return int(bits&0x3fff) + 1, int(bits>>14&0x3fff) + 1
		}
	case "VP8X":
		return 1 + int(uint32(b[12])|uint32(b[13])<<8|uint32(b[14])<<16), 1 + int(uint32(b[15])|uint32(b[16])<<8|uint32(b[17])<<16)
	}
	return 0, 0
}

// jpegSize steps from segment to segment until one that says how large the frame is.
func jpegSize(e encoded) (width, height int) {
	var b [9]byte
	at := 2
	for range maxSegments {
		if !e.read(b[:4], at) || b[0] != 0xff {
			return 0, 0
		}
		kind, length := b[1], int(binary.BigEndian.Uint16(b[2:]))
		switch {
		case kind == 0xff: // fill
			at++
			continue
		case kind >= 0xc0 && kind <= 0xcf && kind != 0xc4 && kind != 0xc8 && kind != 0xcc:
			if !e.read(b[:9], at) {
				return 0, 0
			}
			return int(binary.BigEndian.Uint16(b[7:])), int(binary.BigEndian.Uint16(b[5:]))
		case kind == 0xd9 || kind == 0xda || length < 2:
			return 0, 0
		}
		at += 2 + length
	}
	return 0, 0
}
