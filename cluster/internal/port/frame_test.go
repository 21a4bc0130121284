package port

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// pieces is a reader that gives out a few bytes at a time, as a socket may.
type pieces struct {
	b     []byte
	sizes []byte
	i     int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.b) == 0 {
		return 0, io.EOF
	}
	n := len(p.b)
	if len(p.sizes) > 0 {
		n = 1 + int(p.sizes[p.i%len(p.sizes)])
		p.i++
	}
	n = copy(b, p.b[:min(n, len(p.b))])
	p.b = p.b[n:]
	return n, nil
}

// plain reads frames in the simplest way.
func plain(b []byte, most int) (list []frame, err error) {
	for len(b) > 0 {
		if len(b) < 4 {
			return list, io.ErrUnexpectedEOF
		}
		n := int(binary.LittleEndian.Uint32(b))
		if len(b) < frameHead {
			return list, io.ErrUnexpectedEOF
		}
		if n < 9 || n > 9+most {
			return list, errors.New("length")
		}
		if len(b) < 4+n {
			return list, io.ErrUnexpectedEOF
		}
		list = append(list, frame{binary.LittleEndian.Uint64(b[4:]), b[12], slices.Clone(b[13 : 4+n])})
		b = b[4+n:]
	}
	return list, io.EOF
}

func checkFrames(t interface{ Fatalf(string, ...any) }, b, sizes []byte, most int) {
	want, wantErr := plain(b, most)
	for _, give := range []bool{false, true} {
		r := &frameReader{r: &pieces{b: b, sizes: sizes}, most: most, give: give}
		var got []frame
		var err error
		for {
			var f frame
			if f, err = r.next(); err != nil {
				break
			}
			if !give {
				f.payload = slices.Clone(f.payload)
			}
			got = append(got, f)
		}
		same := slices.EqualFunc(got, want, func(a, b frame) bool {
			return a.id == b.id && a.kind == b.kind && bytes.Equal(a.payload, b.payload)
		})
		if !same {
			t.Fatalf("give %v: read %d frames, not %d, or others", give, len(got), len(want))
		}
		if (err == io.EOF) != (wantErr == io.EOF) || (err == io.ErrUnexpectedEOF) != (wantErr == io.ErrUnexpectedEOF) {
			t.Fatalf("give %v: ended with %v, not %v", give, err, wantErr)
		}
	}
}

func FuzzFrames(f *testing.F) {
	two := appendFrame(appendFrame(nil, 1, 2, []byte("hello")), 1<<63, kindReply, nil)
	f.Add(two, []byte{0})
	f.Add(two[:len(two)-1], []byte{3, 200})
	f.Add([]byte{255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0, 0}, []byte{})
	f.Fuzz(func(t *testing.T, b, sizes []byte) { checkFrames(t, b, sizes, 1<<20) })
}

func TestPayloadsThatWereGivenAwayStayAsTheyAre(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b []byte
		total := 0
		for i := uint64(1); total < 3*slabSize; i++ {
			n := rapid.IntRange(0, 3000).Draw(t, "size")
			if rapid.IntRange(0, 30).Draw(t, "large") == 0 {
				n = rapid.IntRange(slabSize/2, 2*slabSize).Draw(t, "size of a large one")
			}
			b = appendFrame(b, i, uint8(i), bytes.Repeat([]byte{byte(i)}, n))
			total += n + 1
		}
		sizes := rapid.SliceOfN(rapid.Byte(), 0, 5).Draw(t, "pieces")
		checkFrames(t, b, sizes, 2*slabSize)
	})
}

// An outbox is a queue of bytes in which single frames can be found again.
func TestAnOutboxKeepsTheOrderAndLosesOnlyWhatIsCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o outbox
		var want []string
		var taken []byte
		waiting := map[uint64]bool{}
		bytesWaiting := 0
		next, last := uint64(0), uint64(0)
		write := func(b *block) {
			list, err := plain(b.buf, 1<<30)
			if err != io.EOF {
				t.Fatalf("a block must be whole frames: %v", err)
			}
			for _, f := range list {
				if f.kind < reservedKinds {
					delete(waiting, f.id)
					if f.id > b.last {
						t.Fatalf("call %d is in a block whose last one is said to be %d", f.id, b.last)
					}
				}
			}
			bytesWaiting -= len(b.buf)
			last = max(last, b.last)
			taken = append(taken, b.buf...)
			b.free()
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				if b := o.take(); b != nil {
					write(b)
				}
			case 1:
				o.add(3, kindPing, nil, false)
				bytesWaiting += frameHead
				want = append(want, "ping")
			case 2:
				id := rapid.Uint64Range(0, next+1).Draw(t, "cut")
				if o.cut(id) != waiting[id] {
					t.Fatalf("call %d: waiting is %v", id, waiting[id])
				}
				if waiting[id] {
					delete(waiting, id)
					i := slices.IndexFunc(want, func(s string) bool { var n, size uint64; fmt.Sscan(s, &n, &size); return n == id })
					var n, size int
					fmt.Sscan(want[i], &n, &size)
					bytesWaiting -= frameHead + size
					want = slices.Delete(want, i, i+1)
				}
			default:
				next++
				n := rapid.IntRange(0, blockFull/3).Draw(t, "size")
				o.add(next, 1, make([]byte, n), true)
				bytesWaiting += frameHead + n
				waiting[next] = true
				want = append(want, fmt.Sprint(next, n))
			}
			if o.bytes != bytesWaiting {
				t.Fatalf("%d bytes are said to wait, and %d do", o.bytes, bytesWaiting)
			}
		}
		for b := o.take(); b != nil; b = o.take() {
			write(b)
		}
		list, _ := plain(taken, 1<<30)
		var got []string
		for _, f := range list {
			if f.kind == kindPing {
				got = append(got, "ping")
				continue
			}
			got = append(got, fmt.Sprint(f.id, len(f.payload)))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("written %v, not %v", got, want)
		}
	})
}
