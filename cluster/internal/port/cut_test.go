package port

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// cutter is a proxy whose first connection ends after so many bytes in one of the
// directions; it takes no other.
type cutter struct {
	l  net.Listener
	wg sync.WaitGroup
}

func newCutter(t *rapid.T, to string, there bool, after int64) *cutter {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &cutter{l: l}
	p.wg.Go(func() {
		near, err := l.Accept()
		_ = l.Close()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", to)
		if err != nil {
			_ = near.Close()
			return
		}
		pass := func(dst, src net.Conn, limited bool) {
			if limited {
				_, _ = io.CopyN(dst, src, after)
			} else {
				_, _ = io.Copy(dst, src)
			}
			_ = near.Close()
			_ = far.Close()
		}
		p.wg.Go(func() { pass(far, near, there) })
		pass(near, far, !there)
	})
	return p
}

func (p *cutter) close() {
	_ = p.l.Close()
	p.wg.Wait()
}

// Wherever a connection is cut, a call that is said not to be sent was not served,
// one that has a reply was, and each ends once.
func TestACutAtAnyByteIsToldTruthfully(t *testing.T) {
	ca := newAuthority(t)
	server, client := ca.configs(t, ca)
	for name, with := range map[string]struct{ server, client *tls.Config }{"plain": {}, "TLS": {server, client}} {
		t.Run(name, func(t *testing.T) {
			var lost, not, replied int
			rapid.Check(t, func(rt *rapid.T) {
				calls := rapid.IntRange(1, 60).Draw(rt, "calls")
				sizes := rapid.SliceOfN(rapid.IntRange(4, 9000), calls, calls).Draw(rt, "sizes")
				if rapid.IntRange(0, 3).Draw(rt, "large") == 0 {
					sizes[calls/2] += blockFull
				}
				total := 200
				for _, n := range sizes {
					total += n + frameHead
				}
				there := rapid.Bool().Draw(rt, "towards the server")
				after := rapid.IntRange(0, rapid.SampledFrom([]int{200, total, 5 * total}).Draw(rt, "cut within")).Draw(rt, "cut after")
				pause := rapid.IntRange(0, calls).Draw(rt, "calls before the first reply is waited for")

				var mu sync.Mutex
				served := map[int]bool{}
				b, addr := openRapid(rt, Options{Self: self("c", "b.2"), ServerTLS: with.server, ClientTLS: with.client,
					Serve: func(_ Hello, _ uint8, payload []byte, reply func([]byte)) {
						mu.Lock()
						served[int(binary.LittleEndian.Uint32(payload))] = true
						mu.Unlock()
						reply(payload)
					}})
				a, _ := openRapid(rt, Options{ServerTLS: with.server, ClientTLS: with.client, Self: self("c", "a.1")})
				proxy := newCutter(rt, addr, there, int64(after))

				r := newResults(t)
				for i, n := range sizes {
					payload := make([]byte, n)
					binary.LittleEndian.PutUint32(payload, uint32(i))
					done := r.done(i)
					if i == pause {
						first := make(chan struct{})
						a.Go(proxy.l.Addr().String(), "b.2", 1, payload, func(b []byte, err error) {
							done(b, err)
							close(first)
						})
						<-first
						continue
					}
					a.Go(proxy.l.Addr().String(), "b.2", 1, payload, done)
				}
				got := r.wait()
				_ = a.Close()
				proxy.close()
				_ = b.Close() // all that has arrived was served by now

				for i := range calls {
					switch g := got[i]; {
					case g.err == nil:
						replied++
						if !served[i] || len(g.reply) != sizes[i] || int(binary.LittleEndian.Uint32([]byte(g.reply))) != i {
							rt.Fatalf("call %d has a reply that is not its own", i)
						}
					case errors.Is(g.err, ErrNotSent):
						not++
						if served[i] {
							rt.Fatalf("call %d was served, and is said not to be sent: %v", i, g.err)
						}
					default:
						lost++
						if there && after < 10 {
							rt.Fatalf("call %d cannot have been sent without a handshake: %v", i, g.err)
						}
					}
				}
			})
			// Saying that all is lost would be true as well.
			if t.Logf("%d replies, %d lost, %d not sent", replied, lost, not); replied == 0 || lost == 0 || not == 0 {
				t.Error("one of the ends was never seen")
			}
		})
	}
}

// openRapid is open for one run of a property.
func openRapid(t *rapid.T, o Options) (*Port, string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.Listener = l
	p := New(o)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p, l.Addr().String()
}
