package port

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds waits for what must happen; only a broken test waits so long.
const patience = 20 * time.Second

// eventually polls until ok.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("in vain waited for: %s", what)
		}
	}
}

// echo serves calls by sending them back.
func echo(_ Hello, _ uint8, payload []byte, reply func([]byte)) { reply(payload) }

// self makes an Identity that does not change.
func self(cluster, id string) func() Identity {
	return func() Identity { return Identity{cluster, id} }
}

// open starts a Port on a free address of this machine, with what is left out of o
// filled in, and closes it at the end of the test.
func open(t testing.TB, o Options) (p *Port, addr string) {
	t.Helper()
	if o.Listener == nil {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		o.Listener = l
	}
	if o.Self == nil {
		o.Self = self("c", "a.1")
	}
	if o.Serve == nil {
		o.Serve = echo
	}
	p = New(o)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p, o.Listener.Addr().String()
}

// result is how a call has ended.
type result struct {
	reply string
	err   error
}

// results collects the ends of calls, and fails the test if one ends twice.
type results struct {
	t   testing.TB
	wg  sync.WaitGroup
	mu  sync.Mutex
	got map[int]result
}

func newResults(t testing.TB) *results { return &results{t: t, got: map[int]result{}} }

func (r *results) done(i int) func([]byte, error) {
	r.wg.Add(1)
	return func(reply []byte, err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if _, twice := r.got[i]; twice {
			r.t.Errorf("call %d has ended twice", i)
			return
		}
		if err != nil && errors.Is(err, ErrNotSent) == errors.Is(err, ErrLost) {
			r.t.Errorf("an error must be either ErrNotSent or ErrLost: %v", err)
		}
		r.got[i] = result{string(reply), err}
		r.wg.Done()
	}
}

// wait waits until all calls have ended.
func (r *results) wait() map[int]result {
	r.t.Helper()
	all := make(chan struct{})
	go func() {
		r.wg.Wait()
		close(all)
	}()
	select {
	case <-all:
	case <-time.After(patience):
		r.t.Fatal("a call has not ended")
	}
	return r.got
}

// pipes is a network in memory, for tests in virtual time.
type pipes struct {
	mu     sync.Mutex
	places map[string]*place
	dialed []time.Time
}

type place struct {
	name  string
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (p *place) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *place) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *place) Addr() net.Addr { return address(p.name) }

func (n *pipes) listen(name string) *place {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.places == nil {
		n.places = map[string]*place{}
	}
	p := &place{name: name, conns: make(chan net.Conn), done: make(chan struct{})}
	n.places[name] = p
	return p
}

func (n *pipes) dial(ctx context.Context, addr string) (net.Conn, error) {
	n.mu.Lock()
	n.dialed = append(n.dialed, time.Now())
	p := n.places[addr]
	n.mu.Unlock()
	if p == nil {
		return nil, fmt.Errorf("nobody is at %s", addr)
	}
	near, far := net.Pipe()
	select {
	case p.conns <- far:
		return near, nil
	case <-p.done:
		return nil, fmt.Errorf("nobody is at %s any more", addr)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{cert, key, x509.NewCertPool()}
	a.pool.AddCert(cert)
	return a
}

// issue makes a certificate for 127.0.0.1.
func (a *authority) issue(t testing.TB) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// configs are those of a node that shows a certificate of a and trusts those of
// trusted.
func (a *authority) configs(t testing.TB, trusted *authority) (server, client *tls.Config) {
	t.Helper()
	cert := a.issue(t)
	server = &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &cert, nil },
		ClientAuth:     tls.RequireAndVerifyClientCert, ClientCAs: trusted.pool,
	}
	client = &tls.Config{
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil },
		RootCAs:              trusted.pool,
	}
	return server, client
}
