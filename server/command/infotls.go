package command

// infoTLS tells of the certificate what a monitor has to know: when it ends.
func infoTLS(w *infoWriter, s *Server) {
	w.line("tls_enabled", truth(s.TLS != nil))
	if s.TLS == nil {
		return
	}
	i := s.TLS()
	w.line("tls_certificate_valid_from", i.ValidFrom.Unix())
	w.line("tls_certificate_valid_until", i.ValidUntil.Unix())
	w.line("tls_client_certificates", truth(i.ClientCertificates))
	w.line("tls_handshakes_failed", s.traffic().TLSFailed)
}
