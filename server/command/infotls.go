package command

// infoTLS tells of the certificate what a monitor has to know: when it ends.
// Without TLS all of it is 0.
func infoTLS(w *infoWriter, s *Server) {
	var from, until int64
	var i TLSInfo
	if s.TLS != nil {
		i = s.TLS()
		from, until = i.ValidFrom.Unix(), i.ValidUntil.Unix()
	}
	w.line("tls_enabled", truth(s.TLS != nil))
	w.line("tls_certificate_valid_from", from)
	w.line("tls_certificate_valid_until", until)
	w.line("tls_client_certificates", truth(i.ClientCertificates))
	w.line("tls_handshakes_failed", s.traffic().TLSFailed)
}
