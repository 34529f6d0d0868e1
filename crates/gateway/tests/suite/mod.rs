mod http;
mod ws;
