# One-line aliases; the work is in dev.py.
.PHONY: demo test test-triggers test-ext test-pgs test-web test-api check bench bench-election bench-page soak chaos chaos-peers sim clean
demo: ; python3 dev.py demo
test: ; python3 dev.py test
test-triggers: ; python3 dev.py test-triggers
test-ext: ; python3 dev.py test-ext
test-pgs: ; python3 dev.py test-pgs
test-web: ; python3 dev.py test-web
test-api: ; python3 dev.py test-api
check: ; python3 dev.py check
bench: ; python3 dev.py bench
bench-election: ; python3 dev.py bench-election
bench-page: ; python3 dev.py bench-page
soak: ; python3 dev.py soak $(if $(HEALTHY),--healthy) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SNAPSHOT),--snapshot $(SNAPSHOT))
chaos: ; python3 dev.py chaos $(if $(MINUTES),--minutes $(MINUTES))
chaos-peers: ; python3 dev.py chaos-peers
sim: ; python3 dev.py sim
clean: ; python3 dev.py clean
