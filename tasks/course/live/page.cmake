# Joins the parts of the page to live.html in the working folder, which holds live.js and live.wasm.
file(READ ${SOURCES}/page.css style)
file(READ ${SOURCES}/page.js script)
file(READ ${SOURCES}/worker.js worker)
file(READ live.js library)
execute_process(COMMAND base64 -w0 live.wasm OUTPUT_VARIABLE module COMMAND_ERROR_IS_FATAL ANY)
configure_file(${SOURCES}/page.html live.html @ONLY)
