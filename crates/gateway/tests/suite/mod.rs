mod ws;
